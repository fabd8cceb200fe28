//! Which devices a machine has: what its user chose, and what of that is there.

use crate::ArgumentError;
use channel::accelerator::{Device, PciPlace};
use channel::model::ChannelError;
use channel_opencl::{DeviceInfo, DeviceKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The variables that say which devices, where the program doesn't.
const OPENCL: &str = "ISOMETRY_OPENCL";
const CUDA: &str = "ISOMETRY_CUDA";

/// The most devices of a machine; more are left out.
const MOST_DEVICES: usize = 16;

/// Where a driver of a graphics processor says that there is one: NVIDIA's, AMD's and others', and
/// those of Arm, Qualcomm and Windows.
const DRIVERS: [&str; 6] =
    ["/dev/nvidiactl", "/dev/kfd", "/dev/dri", "/dev/mali0", "/dev/kgsl-3d0", "/dev/dxg"];

/// NVIDIA, as PCI numbers it.
const NVIDIA: u32 = 0x10de;

/// Devices of one API, opened.
pub(crate) type Group = Vec<Arc<dyn Device>>;

/// Which devices of OpenCL a machine has as memories. What CUDA has opened is not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerators {
    /// None: OpenCL is not even loaded.
    None,
    /// All that are not this processor. OpenCL is not loaded where no driver of a graphics
    /// processor is.
    Gpu,
    /// All, this processor too where it is a device (PoCL): for tests.
    All,
}

impl FromStr for Accelerators {
    type Err = ArgumentError;

    /// `none`, `gpu` or `all`.
    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        match text {
            "none" => Ok(Accelerators::None),
            "gpu" => Ok(Accelerators::Gpu),
            "all" => Ok(Accelerators::All),
            _ => Err(ArgumentError::Accelerators { given: text.to_owned() }),
        }
    }
}

/// Which devices of CUDA a machine has as memories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cuda {
    /// None: the driver is not even loaded.
    None,
    /// All that the system's driver shows.
    All,
    /// All that the driver at this path shows: for tests.
    Driver(PathBuf),
}

impl FromStr for Cuda {
    type Err = ArgumentError;

    /// `none`, `all` or a path with a `/` in it.
    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        match text {
            "none" => Ok(Cuda::None),
            "all" => Ok(Cuda::All),
            path if path.contains('/') => Ok(Cuda::Driver(path.into())),
            _ => Err(ArgumentError::Cuda { given: text.to_owned() }),
        }
    }
}

/// Which devices a machine has, as far as the program says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    pub(crate) opencl: Option<Accelerators>,
    pub(crate) cuda: Option<Cuda>,
}

impl Choice {
    /// The devices, opened, those of each API together. Those that can't be are left out and logged;
    /// so is that there are none.
    pub(crate) fn open(&self) -> Result<Vec<Group>, ArgumentError> {
        let opencl = self.opencl.map_or_else(|| of_variable(OPENCL, Accelerators::Gpu), Ok)?;
        let cuda = self.cuda.clone().map_or_else(|| of_variable(CUDA, Cuda::All), Ok)?;
        let mut by_cuda = cuda.open();
        by_cuda.truncate(MOST_DEVICES);
        let places: Vec<_> = by_cuda.iter().map(|device| device.profile().place).collect();
        let mut by_opencl = opencl.open(&places);
        by_opencl.truncate(MOST_DEVICES - by_cuda.len());
        Ok([by_cuda, by_opencl].into_iter().filter(|group| !group.is_empty()).collect())
    }
}

/// What `variable` says; `default` where it is not set.
fn of_variable<T: FromStr<Err = ArgumentError>>(
    variable: &str,
    default: T,
) -> Result<T, ArgumentError> {
    match std::env::var_os(variable) {
        None => Ok(default),
        Some(text) => text.to_string_lossy().parse(),
    }
}

impl Accelerators {
    /// Those that CUDA has not opened, whose devices are at `cudas`.
    fn open(self, cudas: &[Option<PciPlace>]) -> Group {
        let is_worth_it = match self {
            Accelerators::None => false,
            Accelerators::Gpu => DRIVERS.iter().any(|path| Path::new(path).exists()),
            Accelerators::All => true,
        };
        if !is_worth_it {
            return Group::new();
        }
        let found = channel_opencl::find();
        let found = found.unwrap_or_else(|why| tell_none(&why, self == Accelerators::All));
        let wanted = found.iter().filter(|found| self.wants(found.info(), cudas));
        all_open(wanted.map(channel_opencl::Found::open))
    }

    /// Whether a device is among them, where CUDA has opened those at `cudas`.
    fn wants(self, info: &DeviceInfo, cudas: &[Option<PciPlace>]) -> bool {
        let is_wanted = self == Accelerators::All || info.kind != DeviceKind::Cpu;
        is_wanted && !cudas.iter().any(|&place| is_cudas(info, place))
    }
}

/// Whether what OpenCL shows is what CUDA has opened at `place`: NVIDIA's are in both, and CUDA knows
/// more of them. Where it is decides, and who made it only where that is not told.
fn is_cudas(info: &DeviceInfo, place: Option<PciPlace>) -> bool {
    match (info.place, place) {
        (Some(shown), Some(opened)) => shown == opened,
        _ => info.kind == DeviceKind::Gpu && info.vendor == NVIDIA,
    }
}

impl Cuda {
    fn open(&self) -> Group {
        let found = match self {
            Cuda::None => return Group::new(),
            Cuda::All => channel_cuda::find(),
            Cuda::Driver(path) => channel_cuda::find_in(path),
        };
        let is_named = matches!(self, Cuda::Driver(_));
        let found = found.unwrap_or_else(|why| tell_none(&why, is_named));
        all_open(found.iter().map(channel_cuda::Found::open))
    }
}

/// Logs why there are none, as a warning where somebody counts on some.
fn tell_none<T>(why: &dyn std::error::Error, is_wanted: bool) -> Vec<T> {
    let level = if is_wanted { log::Level::Warn } else { log::Level::Debug };
    log::log!(level, "no accelerators: {why}");
    Vec::new()
}

/// The devices that could be opened; the others are logged.
fn all_open<D: Device + 'static>(opened: impl Iterator<Item = Result<D, ChannelError>>) -> Group {
    let tell = |error: &ChannelError| log::warn!("an accelerator is left out: {error}");
    let opened = opened.filter_map(|device| device.inspect_err(tell).ok());
    opened.map(|device| Arc::new(device) as Arc<dyn Device>).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_others_refused() {
        assert_eq!("none".parse(), Ok(Accelerators::None));
        assert_eq!("gpu".parse(), Ok(Accelerators::Gpu));
        assert_eq!("all".parse(), Ok(Accelerators::All));
        let error = "GPU".parse::<Accelerators>().unwrap_err();
        assert!(error.to_string().contains("`GPU`") && error.to_string().contains("`gpu`"));
        assert_eq!("none".parse(), Ok(Cuda::None));
        assert_eq!("all".parse(), Ok(Cuda::All));
        assert_eq!("./libcuda.so".parse(), Ok(Cuda::Driver("./libcuda.so".into())));
        let error = "gpu".parse::<Cuda>().unwrap_err();
        assert!(error.to_string().contains("`gpu`") && error.to_string().contains("`all`"));
    }

    #[test]
    fn a_device_that_two_show_is_cudas() {
        use DeviceKind::{Cpu, Gpu};
        let (here, there) = ("0000:17:00.0".parse().ok(), "0000:65:00.0".parse().ok());
        let info = |kind, vendor, place| DeviceInfo {
            platform: "a".to_owned(),
            name: "b".to_owned(),
            version: "OpenCL 3.0".to_owned(),
            vendor,
            kind,
            place,
            shares_host_memory: false,
            memory_bytes: 1,
            most_bytes: 1,
            compiles: true,
            shares_addresses: false,
        };
        // What OpenCL shows, where CUDA's are, and whether it remains OpenCL's.
        for (shown, cudas, is_ours) in [
            (info(Gpu, NVIDIA, here), &[][..], true),
            (info(Gpu, NVIDIA, here), &[here], false),
            (info(Gpu, NVIDIA, here), &[there], true),
            (info(Gpu, NVIDIA, here), &[there, here], false),
            (info(Gpu, NVIDIA, here), &[there, None], false),
            (info(Gpu, NVIDIA, None), &[], true),
            (info(Gpu, NVIDIA, None), &[there], false),
            (info(Gpu, 0x1002, here), &[there], true),
            (info(Gpu, 0x1002, None), &[there], true),
            (info(Gpu, 0x1002, None), &[None], true),
            (info(Cpu, 0x8086, None), &[there, None], true),
        ] {
            assert_eq!(Accelerators::All.wants(&shown, cudas), is_ours, "{shown:?}, {cudas:?}");
            let is_processor = shown.kind == Cpu;
            assert_eq!(Accelerators::Gpu.wants(&shown, cudas), is_ours && !is_processor);
        }
    }
}
