//! What devices say of themselves, and what they refuse.

mod common;

use channel::Provider;
use channel::accelerator::Device;
use channel::conformance::Accelerator;
use channel::model::ChannelErrorKind;
use common::devices;

#[test]
fn devices_say_what_they_are() {
    let Some(devices) = devices("devices_say_what_they_are") else { return };
    for device in devices {
        let info = device.info();
        assert!(!info.name.is_empty() && !info.platform.is_empty(), "{info:?}");
        assert!(info.version.starts_with("OpenCL "), "{info:?}");
        assert!(info.most_bytes > 0 && info.most_bytes <= info.memory_bytes, "{info:?}");
        assert!(!device.health().is_lost());
    }
}

#[test]
fn too_much_is_refused_by_a_clear_error() {
    let Some([device, _]) = devices("too_much_is_refused_by_a_clear_error") else { return };
    let most = device.info().most_bytes;
    let there = Accelerator::new(device, 1);
    for len in [most + 1, 1 << 60, u64::MAX] {
        for provider in [&there.fbm as &dyn Provider, &there.zcm] {
            let error = provider.allocate(len, 4096).unwrap_err();
            assert_eq!(error.kind, ChannelErrorKind::OutOfMemory, "{error}");
            assert!(error.detail.contains(&most.to_string()), "{error}");
        }
    }
    assert!(!there.device.health().is_lost());
}
