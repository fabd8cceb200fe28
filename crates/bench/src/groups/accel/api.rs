//! Which devices there are, and by which API.

use crate::native::{CudaDevice, OpenClDevice, RawDevice};
use crate::report::Bench;
use crate::settings::Stop;
use crate::{Error, Settings};
use channel_opencl::DeviceKind;
use isometry::{
    Accelerators, ArgumentError, Array, CopyOptions, Cuda, Instance, Machine, MachineBuilder,
    Planned,
};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The memories of the first two devices of a machine.
pub(super) const FBM: [&str; 2] = ["fbm", "fbm1"];

/// The driver's library, unless another is named.
const DRIVER: &str = "libcuda.so.1";

/// What a driver that only emulates devices calls them: that of the tests does.
const EMULATED: &str = "Emulated";

/// Of a device's memory, what a machine takes for staging is less than one part of so many.
const STAGING_PARTS: u64 = 15;

/// The devices of one API, at least one.
#[derive(Debug)]
pub(super) struct Api {
    /// What its cases begin with.
    pub(super) label: &'static str,
    /// What the first two devices are.
    pub(super) about: String,
    /// The memory of that of them that has least.
    memory_bytes: u64,
    builder: MachineBuilder,
    devices: Devices,
}

/// How an API finds its devices.
#[derive(Debug)]
enum Devices {
    /// By what shows them, and where they are.
    Cuda(PathBuf, Vec<String>),
    /// By their names, and how many of that name go before.
    OpenCl(Vec<(String, usize)>),
}

impl Api {
    /// Those that there are; what there is not is noted as absent. A device of OpenCL's that is this processor
    /// counts where it is the only one.
    pub(super) fn all(bench: &mut Bench) -> Result<Vec<Api>, Error> {
        let mut all = Vec::new();
        match cuda(Machine::builder(), chosen("ISOMETRY_CUDA", Cuda::All)?) {
            Ok(api) => all.push(api),
            Err(why) => bench.absent("cuda", &why),
        }
        let which = chosen("ISOMETRY_OPENCL", Accelerators::All)?;
        match opencl(Machine::builder(), (which, all.is_empty())) {
            Ok(api) => all.push(api),
            Err(why) => bench.absent("opencl", &why),
        }
        match all.is_empty() {
            true => Err(Error::part("looking for devices")("there is no accelerator")),
            false => Ok(all),
        }
    }

    /// Whether there are two devices.
    pub(super) fn has_two(&self) -> bool {
        match &self.devices {
            Devices::Cuda(_, places) => places.len() > 1,
            Devices::OpenCl(names) => names.len() > 1,
        }
    }

    /// Whether the case `name` was asked for, and has room where it takes so many bytes of a device. One that
    /// has none is noted.
    pub(super) fn wants(&self, bench: &mut Bench, name: &str, bytes: u64) -> bool {
        let has_room = bytes <= self.memory_bytes - self.memory_bytes / STAGING_PARTS;
        let is_asked_for = bench.wants(name);
        if is_asked_for && !has_room {
            bench.leave_out(name, format_args!("it takes {bytes} B of {}", self.memory_bytes));
        }
        is_asked_for && has_room
    }

    /// A machine with the devices of this API alone, and disks at `files`.
    pub(super) fn open(&self, settings: &Settings, files: Option<&Path>) -> Result<Device, Error> {
        let builder = self.builder.clone();
        let machine = files.into_iter().fold(builder, MachineBuilder::disk).open()?;
        Ok(Device { machine, stop: settings.stop.clone() })
    }

    /// The device of this number by nothing but the API, with two memories of so many bytes.
    pub(super) fn raw(&self, n: usize, bytes: [usize; 2]) -> Result<Box<dyn RawDevice>, Error> {
        Ok(match &self.devices {
            Devices::Cuda(library, at) => Box::new(CudaDevice::open(library, &at[n], bytes)?),
            Devices::OpenCl(names) => {
                let (name, before) = &names[n];
                Box::new(OpenClDevice::open(name, *before, bytes)?)
            }
        })
    }
}

/// What a variable says, as machines read it.
fn chosen<T: FromStr<Err = ArgumentError>>(variable: &str, default: T) -> Result<T, Error> {
    let text = std::env::var_os(variable);
    let chosen = text.map_or(Ok(default), |text| text.to_string_lossy().parse());
    Ok(chosen.map_err(isometry::Error::from)?)
}

/// CUDA's devices, as `which` says, for machines made by `builder`.
pub(super) fn cuda(builder: MachineBuilder, which: Cuda) -> Result<Api, Error> {
    let library = match &which {
        Cuda::None => return Err(Error::part("looking for devices")("ISOMETRY_CUDA is none")),
        Cuda::All => PathBuf::from(DRIVER),
        Cuda::Driver(path) => path.clone(),
    };
    let found = channel_cuda::find_in(&library).map_err(Error::part("looking for devices"))?;
    let infos: Vec<_> = found.iter().take(FBM.len()).map(channel_cuda::Found::info).collect();
    let is_emulated = infos.iter().any(|info| info.name.starts_with(EMULATED));
    let about = |info: &&channel_cuda::DeviceInfo| {
        let (major, minor) = info.cuda_version;
        format!("{} by CUDA {major}.{minor}", info.name)
    };
    Ok(Api {
        label: if is_emulated { "emulated CUDA" } else { "CUDA" },
        about: infos.iter().map(about).collect::<Vec<_>>().join(", "),
        memory_bytes: infos.iter().map(|info| info.memory_bytes).min().unwrap_or(0),
        builder: builder.accelerators(Accelerators::None).cuda(which),
        devices: Devices::Cuda(library, infos.iter().map(|info| info.bus_id.clone()).collect()),
    })
}

/// OpenCL's devices, as `which` says: those that are not this processor, or all where there are none and
/// it counts.
pub(super) fn opencl(
    builder: MachineBuilder,
    (which, counts_processor): (Accelerators, bool),
) -> Result<Api, Error> {
    let nothing = |why: &str| Err(Error::part("looking for devices")(why));
    if which == Accelerators::None {
        return nothing("ISOMETRY_OPENCL is none");
    }
    let found = channel_opencl::find().map_err(Error::part("looking for devices"))?;
    let infos = || found.iter().map(channel_opencl::Found::info);
    let has_others = infos().any(|info| info.kind != DeviceKind::Cpu);
    let is_enough = has_others || counts_processor && which == Accelerators::All;
    if !is_enough {
        return nothing("this processor is all that OpenCL shows");
    }
    let same = |n, name: &str| infos().take(n).filter(|info| info.name == name).count();
    let own = infos().enumerate().filter(|(_, info)| !has_others || info.kind != DeviceKind::Cpu);
    let own: Vec<_> = own.take(FBM.len()).collect();
    let about = |(_, info): &(usize, &channel_opencl::DeviceInfo)| {
        format!("{} by {}", info.name, info.platform)
    };
    let which = if has_others { Accelerators::Gpu } else { Accelerators::All };
    Ok(Api {
        label: if has_others { "OpenCL" } else { "emulated OpenCL" },
        about: own.iter().map(about).collect::<Vec<_>>().join(", "),
        memory_bytes: own.iter().map(|(_, info)| info.memory_bytes).min().unwrap_or(0),
        builder: builder.accelerators(which).cuda(Cuda::None),
        devices: Devices::OpenCl(
            own.iter().map(|(n, info)| (info.name.clone(), same(*n, &info.name))).collect(),
        ),
    })
}

/// The memories of a plan, by their names.
pub(super) fn memories(planned: &Planned) -> Vec<String> {
    planned.plan.memories.iter().map(|&id| planned.topology.short_name(id)).collect()
}

/// The memories of a plan and the channels between them.
pub(super) fn path(planned: &Planned) -> String {
    let kinds: Vec<_> = planned.plan.hops.iter().map(|hop| hop.kind.name()).collect();
    format!("{} by {}", memories(planned).join(", "), kinds.join(", "))
}

/// A machine with devices, of which the cases know the first two.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) machine: Machine,
    pub(super) stop: Stop,
}

impl Device {
    /// Copies, and waits for the end.
    pub(super) fn copy(&self, src: &Instance, dst: &Instance) -> Result<(), Error> {
        self.stop.finish(&self.machine.copy(src, dst, &CopyOptions::default())?)
    }

    /// An array in the memory called `memory`; every page of the host's is touched, so that no copy pays
    /// for that.
    pub(super) fn empty(&self, array: &Array, memory: &str) -> Result<Instance, Error> {
        let made = self.machine.empty(array.clone(), memory)?;
        if let Ok(span) = made.host_span() {
            made.fill(&vec![5; span.len_bytes()])?;
        }
        Ok(made)
    }

    /// Writes `bytes` into all of `instance`, wherever it is.
    pub(super) fn load(&self, instance: &Instance, bytes: &[u8]) -> Result<(), Error> {
        if instance.host_span().is_ok() {
            return Ok(instance.fill(bytes)?);
        }
        let here = self.machine.empty(instance.array(), "sys")?;
        here.fill(bytes)?;
        self.copy(&here, instance)
    }

    /// The bytes of all of `instance`, wherever it is.
    pub(super) fn bytes(&self, instance: &Instance) -> Result<Vec<u8>, Error> {
        if instance.host_span().is_ok() {
            return Ok(instance.to_vec()?);
        }
        let here = self.machine.empty(instance.array(), "sys")?;
        self.copy(instance, &here)?;
        Ok(here.to_vec()?)
    }
}
