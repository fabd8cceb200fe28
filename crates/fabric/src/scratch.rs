use std::cell::Cell;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Memory for what goes into messages. It is the thread's: new memory would cost as much as what is
/// written to it.
#[derive(Debug)]
pub(crate) struct Scratch(Vec<u8>);

impl Scratch {
    pub(crate) fn take() -> Scratch {
        Scratch(SCRATCH.take())
    }

    /// So many bytes, which hold anything.
    pub(crate) fn bytes(&mut self, count: usize) -> &mut [u8] {
        if self.0.len() < count {
            self.0.resize(count, 0);
        }
        &mut self.0[..count]
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        SCRATCH.set(std::mem::take(&mut self.0));
    }
}
