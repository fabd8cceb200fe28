//! When kernels are compiled, and what becomes of conversions where they can't be.

use crate::cl::Program;
use crate::common::devices;
use channel::accelerator::{Device as _, Direction, KernelDevice as _};
use channel::conformance::{Accelerator, Shape, job, run_one};

#[test]
fn kernels_that_are_none_are_refused() {
    let Some([device, _]) = devices("kernels_that_are_none_are_refused") else { return };
    let built = Program::new(device.context(), "__kernel void wrong(");
    assert_eq!(built.unwrap_err().call, "clBuildProgram");
    let missing = device.kernels().unwrap().function("missing");
    assert_eq!(missing.unwrap_err().call, "clCreateKernel");
    assert_eq!(device.health().check_for(Direction::Convert), Ok(()));
}

#[test]
fn kernels_are_compiled_by_the_first_conversion() {
    let test = "kernels_are_compiled_by_the_first_conversion";
    let Some([device, _]) = devices(test) else { return };
    let there = Accelerator::new(device.clone(), 1);
    let channels = [Direction::Copy, Direction::Convert].map(|way| there.channel(way));
    assert!(device.profile().converts && !device.knows_kernels());
    for (n, (mut channel, compiles)) in (1..).zip(channels.into_iter().zip([false, true])) {
        let ends = (there.fbm(&[n; 8]), there.fbm(&[0; 8]));
        let done = run_one(channel.as_mut(), job(1, &[Shape::run(8).copy], (0, 0), ends.clone()));
        assert_eq!((done.result, there.contents(&ends.1)), (Ok(()), vec![n; 8]));
        assert_eq!(device.knows_kernels(), compiles);
    }
}
