//! What OpenCL says, in the words of channels.

use crate::cl::Failure;
use channel::model::{ChannelError, ChannelErrorKind};
use cl3::error_codes::{
    CL_CONTEXT_TERMINATED_KHR, CL_DEVICE_NOT_AVAILABLE, CL_INVALID_BUFFER_SIZE,
    CL_INVALID_COMMAND_QUEUE, CL_INVALID_CONTEXT, CL_INVALID_DEVICE,
    CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES,
};

/// When OpenCL said that something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// As it was asked for.
    Asked,
    /// As the device carried it out.
    Ran,
}

/// The kind of error that `code` is. A device that runs out of resources while it carries out a
/// copy, which needs none, is broken: that is how drivers speak of faults. One that says so when it
/// is asked may have room later.
fn kind_of(code: i32, when: When) -> ChannelErrorKind {
    match code {
        CL_DEVICE_NOT_AVAILABLE
        | CL_INVALID_DEVICE
        | CL_INVALID_CONTEXT
        | CL_INVALID_COMMAND_QUEUE
        | CL_CONTEXT_TERMINATED_KHR => ChannelErrorKind::DeviceLost,
        CL_OUT_OF_RESOURCES if when == When::Ran => ChannelErrorKind::DeviceLost,
        CL_OUT_OF_RESOURCES
        | CL_OUT_OF_HOST_MEMORY
        | CL_MEM_OBJECT_ALLOCATION_FAILURE
        | CL_INVALID_BUFFER_SIZE => ChannelErrorKind::OutOfMemory,
        _ => ChannelErrorKind::Io,
    }
}

/// `failure` of the device called `name`.
pub(crate) fn failed(name: &str, failure: Failure, when: When) -> ChannelError {
    ChannelError::new(kind_of(failure.code, when), format!("OpenCL device `{name}`: {failure}"))
}

/// A device called `name` that was lost, for the reason that was told then.
pub(crate) fn lost(name: &str, why: &str) -> ChannelError {
    let detail = format!("OpenCL device `{name}` is lost, and takes no more work: {why}");
    ChannelError::new(ChannelErrorKind::DeviceLost, detail)
}

/// Memory of the device called `name` that can't be had.
pub(crate) fn no_memory(name: &str, len_bytes: u64, why: &str) -> ChannelError {
    let detail = format!("can't allocate {len_bytes} bytes of OpenCL device `{name}`: {why}");
    ChannelError::new(ChannelErrorKind::OutOfMemory, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_call_code_and_device() {
        let failure = Failure { call: "clEnqueueReadBuffer", code: CL_OUT_OF_RESOURCES };
        let (asked, ran) = (failed("a", failure, When::Asked), failed("a", failure, When::Ran));
        let detail = "OpenCL device `a`: clEnqueueReadBuffer: CL_OUT_OF_RESOURCES (-5)";
        assert_eq!((asked.detail.as_str(), ran.detail.as_str()), (detail, detail));
        assert_eq!(asked.kind, ChannelErrorKind::OutOfMemory);
        assert_eq!(ran.kind, ChannelErrorKind::DeviceLost);
        let gone = Failure { call: "clFlush", code: CL_DEVICE_NOT_AVAILABLE };
        assert_eq!(failed("a", gone, When::Asked).kind, ChannelErrorKind::DeviceLost);
        let wrong = Failure { call: "clFlush", code: -30 };
        assert_eq!(failed("a", wrong, When::Ran).kind, ChannelErrorKind::Io);
    }
}
