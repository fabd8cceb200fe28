//! Memory that another process has exported, and what of that is refused: all of it emulated.

mod common;

use channel::Region;
use channel::accelerator::{Device as _, Interop, IpcHandle, Owner};
use channel::model::{ChannelErrorKind, MemoryId, NodeId};
use common::{emulated, fake};
use isometry_channel_cuda::Device;
use std::io::{BufRead, BufReader, Read, stdin};
use std::process::{Command, Stdio};
use std::{array, env};

const BYTES: u64 = 1 << 20;

/// Where this is set, the process is the one that exports.
const EXPORTS: &str = "ISOMETRY_TEST_EXPORTS";

/// What stands before a handle on a line.
const HANDLE: &str = "handle ";

fn region(owner: Owner) -> Region {
    Region::device(MemoryId { node: NodeId(0), index: 0 }, BYTES, owner)
}

fn exported(device: &Device) -> (Region, IpcHandle) {
    let region = region(device.allocate(BYTES).unwrap());
    let handle = device.export(&region).unwrap().unwrap();
    (region, handle)
}

/// Says a handle, and keeps what it is of until nobody wants it any more.
fn export_until_told(device: &Device) {
    let (_region, handle) = exported(device);
    println!("\n{HANDLE}{}", handle.0.map(|byte| format!("{byte:02x}")).concat());
    let _ = stdin().read(&mut [0]);
}

/// The handle that a process says.
fn heard(lines: impl BufRead) -> IpcHandle {
    let said = |line: String| line.strip_prefix(HANDLE).map(str::to_owned);
    let text = lines.lines().map_while(Result::ok).find_map(said).unwrap();
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    IpcHandle(array::from_fn(byte))
}

#[test]
fn what_another_process_has_exported_is_opened_and_closed() {
    let test = "what_another_process_has_exported_is_opened_and_closed";
    let Some(fake) = fake(test) else { return };
    let [device, other] = emulated(&fake);
    if env::var_os(EXPORTS).is_some() {
        return export_until_told(&device);
    }
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(EXPORTS, "1");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Read from until it has ended: it has more to say.
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let handle = heard(&mut said);
    let before = fake.live();
    let opened = [&device, &other].map(|device| device.import(&handle, BYTES).unwrap());
    assert_eq!(device.span(&opened[0]).unwrap().len_bytes(), BYTES);
    assert!(device.span(&opened[1]).is_none(), "the other has opened it");
    assert_eq!(
        device.export(&region(opened[0].clone())).unwrap(),
        None,
        "it is not this process's"
    );
    let longer = device.import(&handle, BYTES + 1).unwrap_err();
    assert_eq!(longer.kind, ChannelErrorKind::Io);
    assert!(longer.detail.contains("cuIpcOpenMemHandle"), "{}", longer.detail);
    drop(opened);
    assert_eq!(fake.live(), before);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(device.import(&handle, BYTES).is_err(), "its process has ended");
}

#[test]
fn what_is_no_handle_of_another_process_is_refused_and_loses_no_device() {
    let test = "what_is_no_handle_of_another_process_is_refused_and_loses_no_device";
    let Some(fake) = fake(test) else { return };
    let [device, other] = emulated(&fake);
    let (here, own) = exported(&device);
    for handle in [own, IpcHandle([0; 64]), IpcHandle([0xff; 64])] {
        let error = device.import(&handle, BYTES).unwrap_err();
        assert_eq!(error.kind, ChannelErrorKind::Io, "{}", error.detail);
    }
    assert!(!device.health().is_lost());
    assert_eq!(other.export(&here).unwrap(), None, "it is not this device's");
    fake.refuse("cuIpcGetMemHandle", 801);
    let error = device.export(&here).unwrap_err();
    assert!(error.detail.contains("CUDA_ERROR_NOT_SUPPORTED"), "{}", error.detail);
}
