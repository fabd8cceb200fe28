//! What OpenCL says, in the words of channels.

use channel::model::ChannelErrorKind;
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
pub(crate) fn kind_of(code: i32, when: When) -> ChannelErrorKind {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_kinds() {
        use ChannelErrorKind::{DeviceLost, Io, OutOfMemory};
        assert_eq!(kind_of(CL_OUT_OF_RESOURCES, When::Asked), OutOfMemory);
        assert_eq!(kind_of(CL_OUT_OF_RESOURCES, When::Ran), DeviceLost);
        assert_eq!(kind_of(CL_DEVICE_NOT_AVAILABLE, When::Asked), DeviceLost);
        assert_eq!(kind_of(-30, When::Ran), Io);
    }
}
