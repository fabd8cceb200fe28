//! DLPack (version 1.x, and the structure before it): memory of devices, in and out, without a copy.
//!
//! **Hazard.** A tensor is given back twice, or never, or while somebody touches it, or with a thread in the
//! interpreter that needs what another waits for. **Guarantee.** Who takes a tensor renames its capsule, and
//! gives the tensor back once: with the interpreter, when the last that uses it has gone. What is handed out
//! keeps its instance until it is given back, on whatever thread that is. **Structure.** `raw` has the
//! structures, `dtype` names their elements, `import` takes tensors out of capsules and `export` puts
//! instances into them.

mod dtype;
mod export;
mod import;
mod raw;

pub(crate) use export::{Request, capsule, device_of};
pub(crate) use import::{is_on_cuda, taken};
