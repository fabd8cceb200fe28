//! Conversions inside a device's memory, beside a copy of as many bytes there.

use super::api::{Api, Device, FBM};
use crate::Error;
use crate::content::{Content, Numbers};
use crate::native::Rows;
use crate::problems::Conversion;
use crate::report::{Bench, Case, Contender};
use isometry::CopyOptions;

/// Times ours beside the API's own copy.
pub(super) fn run(
    bench: &mut Bench,
    (api, device): (&Api, &Device),
    (name, problem): (String, &Conversion),
) -> Result<(), Error> {
    let [from, to] = problem.arrays()?;
    let expected = Numbers::of(&from)?.laid_out(&to.layout)?;
    let (src, dst) = (device.empty(&from, FBM[0])?, device.empty(&to, FBM[0])?);
    device.load(&src, &Content::of(&from)?.to_vec(&device.stop)?)?;
    let planned = device.machine.plan(&src, &dst, &CopyOptions::default().planning)?;
    bench.line(planned.explain())?;
    let bytes = src.payload_bytes();
    let whole = usize::try_from(bytes).map_err(Error::part("counting bytes"))?;
    let raw = api.raw(0, [whole, whole])?;
    let mut contenders = [
        Contender { name: "isometry", run: &mut || device.copy(&src, &dst) },
        Contender { name: "copy", run: &mut || raw.copy_inside(Rows::one(whole)) },
    ];
    let case = Case { name, bytes, threads: 1, runs: problem.runs, calls: 1 };
    bench.run(&case, &mut contenders, &mut || {
        expected.is_in(&mut &*device.bytes(&dst)?, &device.stop)
    })
}
