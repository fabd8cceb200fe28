//! oneDNN's reorder, through its C interface (version 3).

use super::library::Loaded;
use crate::Error;
use crate::peer::{Peer, Ready, Strides, Task, View, fastest};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;

type Raw = *mut c_void;
type Destroy = unsafe extern "C" fn(Raw) -> c_int;

/// `dnnl_cpu`, `dnnl_stream_in_order`.
const CPU: c_int = 1;
const IN_ORDER: u32 = 1;
/// `DNNL_ARG_FROM`, `DNNL_ARG_TO`.
const FROM: c_int = 1;
const TO: c_int = 17;
/// `dnnl_query_impl_info_str`, and how the names of reference implementations begin.
const IMPLEMENTATION: c_int = 8;
const REFERENCE: [&str; 2] = ["simple", "ref"];
/// `DNNL_MAX_NDIMS`.
const MOST_DIMS: usize = 12;

/// `dnnl_exec_arg_t`.
#[repr(C)]
struct Argument {
    which: c_int,
    memory: Raw,
}

/// How `dnnl_version_t` begins.
#[repr(C)]
struct Version([c_int; 3]);

struct Api {
    version: unsafe extern "C" fn() -> *const Version,
    desc: unsafe extern "C" fn(*mut Raw, c_int, *const i64, c_int, *const i64) -> c_int,
    reorder: unsafe extern "C" fn(*mut Raw, Raw, Raw, Raw, Raw, *const c_void) -> c_int,
    query: unsafe extern "C" fn(Raw, c_int, c_int, *mut *const c_char) -> c_int,
    primitive: unsafe extern "C" fn(*mut Raw, Raw) -> c_int,
    memory: unsafe extern "C" fn(*mut Raw, Raw, Raw, Raw) -> c_int,
    execute: unsafe extern "C" fn(Raw, Raw, c_int, *const Argument) -> c_int,
    wait: unsafe extern "C" fn(Raw) -> c_int,
    /// Of the OpenMP that it runs on.
    set_threads: unsafe extern "C" fn(c_int),
    /// Of a description, a reorder's, a primitive and a memory.
    destroy: [Destroy; 4],
}

/// The library, with an engine and a stream of its own.
pub(crate) struct OneDnn {
    api: Rc<Api>,
    engine: Raw,
    stream: Raw,
}

/// What is destroyed with its owner.
struct Owned {
    raw: Raw,
    destroy: Destroy,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made by the library with this destructor, and destroyed once. There is nothing
        // to be done where it fails.
        unsafe { (self.destroy)(self.raw) };
    }
}

/// What views of one shape share: the primitive, what its two sides look like, and the name of a
/// reference implementation where the library has no other.
struct Shared {
    primitive: Owned,
    sides: [Owned; 2],
    reference: Option<String>,
}

/// Made ready for one view: the reorder and its two memories.
struct Reorder {
    shared: Rc<Shared>,
    arguments: [Argument; 2],
    /// What the arguments point to.
    _memories: [Owned; 2],
}

impl OneDnn {
    pub(crate) fn load() -> Result<Self, Error> {
        let library = Loaded::open("ISOMETRY_ONEDNN", &["libdnnl.so.3"])?;
        type Make = unsafe extern "C" fn(*mut Raw, c_int, usize) -> c_int;
        type Stream = unsafe extern "C" fn(*mut Raw, Raw, u32) -> c_int;
        // SAFETY: the types are those of dnnl.h, version 3, and of omp.h.
        let (make, stream, api) = unsafe {
            let api = Api {
                version: library.function("dnnl_version")?,
                desc: library.function("dnnl_memory_desc_create_with_strides")?,
                reorder: library.function("dnnl_reorder_primitive_desc_create")?,
                query: library.function("dnnl_primitive_desc_query")?,
                primitive: library.function("dnnl_primitive_create")?,
                memory: library.function("dnnl_memory_create")?,
                execute: library.function("dnnl_primitive_execute")?,
                wait: library.function("dnnl_stream_wait")?,
                set_threads: library.function("omp_set_num_threads")?,
                destroy: [
                    library.function("dnnl_memory_desc_destroy")?,
                    library.function("dnnl_primitive_desc_destroy")?,
                    library.function("dnnl_primitive_destroy")?,
                    library.function("dnnl_memory_destroy")?,
                ],
            };
            let make: Make = library.function("dnnl_engine_create")?;
            let stream: Stream = library.function("dnnl_stream_create")?;
            (make, stream, Rc::new(api))
        };
        library.keep();
        let mut dnn = OneDnn { api, engine: null_mut(), stream: null_mut() };
        // SAFETY: the pointers are to places of their types; the engine is there when the stream
        // is made. Neither is destroyed: one of each for a process.
        let statuses = unsafe {
            [make(&raw mut dnn.engine, CPU, 0), stream(&raw mut dnn.stream, dnn.engine, IN_ORDER)]
        };
        match statuses {
            [0, 0] => Ok(dnn),
            _ => Err(Error::part("starting oneDNN")(format!("{statuses:?}"))),
        }
    }

    /// The reorder of `view`, or none where the library has none.
    fn shared(&self, view: &View) -> Option<Shared> {
        let [_, pd, primitive, _] = self.api.destroy;
        let sides = [self.desc(view, &view.src)?, self.desc(view, &view.dst)?];
        let (api, engine) = (&self.api, self.engine);
        let [src, dst] = [sides[0].raw, sides[1].raw];
        // SAFETY: `at` is a place for the result; all others were made by the library and live;
        // no attributes are none.
        let reorder =
            owned(pd, |at| unsafe { (api.reorder)(at, src, engine, dst, engine, null()) })?;
        // SAFETY: as above.
        let primitive = owned(primitive, |at| unsafe { (api.primitive)(at, reorder.raw) })?;
        let is_reference = |name: &String| REFERENCE.iter().any(|r| name.starts_with(r));
        let reference = self.implementation(&reorder).filter(is_reference);
        Some(Shared { primitive, sides, reference })
    }

    /// What the library calls how it does that.
    fn implementation(&self, reorder: &Owned) -> Option<String> {
        let mut name = null();
        // SAFETY: the description lives, and this question puts a string there that is a part of it.
        let status = unsafe { (self.api.query)(reorder.raw, IMPLEMENTATION, 0, &raw mut name) };
        if status != 0 || name.is_null() {
            return None;
        }
        // SAFETY: as above.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// One side of `view`, whose strides its items divide.
    fn desc(&self, view: &View, side: &Strides) -> Option<Owned> {
        let rank = c_int::try_from(view.extents.len()).ok()?;
        let extents: Vec<i64> = view.extents.iter().map(|e| e.cast_signed()).collect();
        let item = view.item_bytes.cast_signed();
        let strides: Vec<i64> = side.strides.iter().map(|s| s / item).collect();
        // bf16, f32 and u8: those that the library treats best of their size.
        let kind = match view.item_bytes {
            1 => 6,
            2 => 2,
            4 => 3,
            _ => return None,
        };
        let (extents, strides) = (extents.as_ptr(), strides.as_ptr());
        // SAFETY: `at` is a place for the result, and the arrays hold `rank` numbers.
        owned(self.api.destroy[0], |at| unsafe {
            (self.api.desc)(at, rank, extents, kind, strides)
        })
    }

    fn memory(&self, desc: &Owned, address: usize) -> Option<Owned> {
        let (api, engine) = (&self.api, self.engine);
        // SAFETY: `at` is a place for the result; the library touches the address only when a
        // reorder is executed.
        owned(api.destroy[3], |at| unsafe { (api.memory)(at, desc.raw, engine, address as Raw) })
    }
}

/// What `make` puts there, unless it fails: the library can't do it.
fn owned(destroy: Destroy, make: impl FnOnce(*mut Raw) -> c_int) -> Option<Owned> {
    let mut raw = null_mut();
    (make(&raw mut raw) == 0).then(|| Owned { raw, destroy })
}

/// What views must agree in to share a reorder.
type Shape = (u64, Vec<u64>, (Vec<i64>, Vec<i64>));

impl OneDnn {
    /// How `task` is done by reorders of `views`; none where the library has none.
    fn way<'a>(&self, task: &Task<'a>, views: &[View]) -> Option<Ready<'a>> {
        let mut shapes: HashMap<Shape, Rc<Shared>> = HashMap::new();
        let mut reorders = Vec::with_capacity(views.len());
        for view in views {
            if view.extents.len() > MOST_DIMS || view.extents.is_empty() {
                return None;
            }
            let strides = (view.src.strides.clone(), view.dst.strides.clone());
            let shape = (view.item_bytes, view.extents.clone(), strides);
            if !shapes.contains_key(&shape) {
                shapes.insert(shape.clone(), Rc::new(self.shared(view)?));
            }
            let shared = Rc::clone(&shapes[&shape]);
            let at = |start: usize, offset: i64| start.wrapping_add_signed(offset as isize);
            let src = self.memory(&shared.sides[0], at(task.spans.src.0, view.src.offset))?;
            let dst = self.memory(&shared.sides[1], at(task.spans.dst.0, view.dst.offset))?;
            let argument = |which, of: &Owned| Argument { which, memory: of.raw };
            let arguments = [argument(FROM, &src), argument(TO, &dst)];
            reorders.push(Reorder { shared, arguments, _memories: [src, dst] });
        }
        let remark = shapes.values().find_map(|shared| shared.reference.as_ref());
        let remark = remark.map(|name| format!("its reference implementation ({name})"));
        let (api, stream) = (Rc::clone(&self.api), self.stream);
        Some(Ready { run: Box::new(move || run(&api, stream, &reorders)), remark })
    }
}

impl Peer for OneDnn {
    fn name(&self) -> &str {
        "onednn"
    }

    fn version(&self) -> Option<String> {
        // SAFETY: the library returns a constant of its own, or null.
        let version = unsafe { (self.api.version)().as_ref() }?;
        let Version([major, minor, patch]) = version;
        Some(format!("{major}.{minor}.{patch}"))
    }

    /// Elements of two bytes go as numbers of that size or as pairs of bytes: not every processor has
    /// more than the reference implementation for the former.
    fn prepare<'a>(&mut self, task: &Task<'a>) -> Result<Option<Ready<'a>>, Error> {
        // SAFETY: a setting of the calling thread, for what it starts from now on.
        unsafe { (self.api.set_threads)(task.threads.cast_signed()) };
        let whole: Vec<View> = task.views.iter().map(|view| view.in_aligned_items(4)).collect();
        let mut ways: Vec<Ready<'a>> = self.way(task, &whole).into_iter().collect();
        if whole.iter().any(|view| view.item_bytes == 2) {
            let bytes = |view: &View| match view.item_bytes {
                2 => view.in_items(1),
                _ => view.clone(),
            };
            let pairs: Vec<View> = whole.iter().map(bytes).collect();
            ways.extend(self.way(task, &pairs));
        }
        // Who has taken far longer than another runs but once: a reference implementation takes minutes.
        ways.sort_by_key(|way| way.remark.is_some());
        fastest(ways)
    }
}

fn run(api: &Api, stream: Raw, reorders: &[Reorder]) -> Result<(), Error> {
    let mut failed = 0;
    for reorder in reorders {
        let arguments = reorder.arguments.as_ptr();
        // SAFETY: primitive, stream and memories live; the memories' bytes lie inside the task's
        // buffers, which outlive the run.
        failed |= unsafe { (api.execute)(reorder.shared.primitive.raw, stream, 2, arguments) };
    }
    // SAFETY: the stream lives as long as the process.
    match failed | unsafe { (api.wait)(stream) } {
        0 => Ok(()),
        status => Err(Error::part("running oneDNN")(status)),
    }
}
