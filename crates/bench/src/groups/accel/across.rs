//! A run from one device to another, beside the API's own call where it has one, and beside a copy to pinned
//! memory of the host and one from there.

use super::api::{Api, Device, FBM};
use super::rows::POISON;
use crate::Error;
use crate::content::Content;
use crate::native::{CudaDevice, Host, RawDevice, Rows, Way};
use crate::report::{Bench, Case, Contender};
use isometry::Array;
use std::cell::RefCell;

/// Two devices by nothing but their API, and memory of the host between them.
struct Raw {
    from: Box<dyn RawDevice>,
    to: Box<dyn RawDevice>,
    host: Host,
    run: Rows,
}

impl Raw {
    fn new(api: &Api, bytes: usize) -> Result<Raw, Error> {
        let (from, to) = (api.raw(0, [bytes, 1])?, api.raw(1, [bytes, 1])?);
        Ok(Raw { host: from.pin(bytes)?, from, to, run: Rows::one(bytes) })
    }

    /// Both devices, where they can reach each other.
    fn peers(&self) -> Option<(&CudaDevice, &CudaDevice)> {
        self.from.as_cuda().zip(self.to.as_cuda())
    }

    fn copy_by_host(&mut self) -> Result<(), Error> {
        self.from.copy(Way::Read, &mut self.host, self.run)?;
        self.to.copy(Way::Write, &mut self.host, self.run)
    }

    fn copy(&self) -> Result<(), Error> {
        self.peers().map_or(Ok(()), |(from, to)| from.copy_across(to, self.run.bytes))
    }

    /// Whether `copy` brings `content` from the one device to the other.
    fn brings(
        &mut self,
        content: &[u8],
        copy: impl FnOnce(&mut Raw) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        self.host.bytes().copy_from_slice(content);
        self.from.copy(Way::Write, &mut self.host, self.run)?;
        self.host.bytes().fill(POISON);
        self.to.copy(Way::Write, &mut self.host, self.run)?;
        copy(self)?;
        self.host.bytes().fill(POISON);
        self.to.copy(Way::Read, &mut self.host, self.run)?;
        Ok(self.host.bytes() == content)
    }

    fn is_right(&mut self, content: &[u8]) -> Result<bool, Error> {
        let is_direct = self.peers().is_none() || self.brings(content, |raw| raw.copy())?;
        Ok(is_direct && self.brings(content, Raw::copy_by_host)?)
    }
}

/// Times ours beside the others, for a run of so many bytes.
pub(super) fn run(
    bench: &mut Bench,
    (api, device): (&Api, &Device),
    (name, bytes, runs): (String, usize, usize),
) -> Result<(), Error> {
    let array = Array::of(&[("x", bytes as u64)], "|u1")?;
    let content = Content::of(&array)?.to_vec(&device.stop)?;
    let [src, dst] = FBM.map(|memory| device.empty(&array, memory));
    let (src, dst) = (src?, dst?);
    device.load(&src, &content)?;
    device.copy(&src, &dst)?;
    let mut raw = Raw::new(api, bytes)?;
    let verified = device.bytes(&dst)? == content && raw.is_right(&content)?;
    let (is_direct, raw) = (raw.peers().is_some(), RefCell::new(raw));
    let mut ours = || device.copy(&src, &dst);
    let mut by_host = || raw.borrow_mut().copy_by_host();
    let mut directly = || raw.borrow().copy();
    let mut contenders = vec![
        Contender { name: "isometry", run: &mut ours },
        Contender { name: "raw by the host", run: &mut by_host },
    ];
    if is_direct {
        contenders.push(Contender { name: "raw", run: &mut directly });
    }
    let case = Case { name, bytes: bytes as u64, threads: 1, runs, calls: 1 };
    bench.time((&case, verified), &mut contenders, &mut || Ok(()))
}
