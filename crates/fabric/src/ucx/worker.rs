//! UCX's objects, which one thread makes, uses and drops.

use super::raw::{self, Api, Pointer, Status};
use crate::error::Error;
use crate::windows::Owner;
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Arc;

/// The one active message of this.
const MESSAGE: u32 = 1;

/// Where the system keeps the library, if it has it.
const LIBRARY: &str = "libucp.so.0";

fn failed(doing: &'static str) -> impl Fn(Status) -> Error {
    move |status| Error::Io { doing, source: std::io::Error::other(format!("UCX says {status}")) }
}

fn checked(doing: &'static str, status: Status) -> Result<(), Error> {
    if status == raw::OK { Ok(()) } else { Err(failed(doing)(status)) }
}

/// Takes the header and the data of each message that comes, on the thread that makes progress.
pub(crate) trait Arrivals: Send + Sync {
    fn arrive(&self, header: &[u8], data: &[u8]);
}

/// A context, a worker, and memory that others put to.
pub(crate) struct Worker<A: Arrivals> {
    api: Api,
    context: Pointer,
    worker: Pointer,
    registered: Vec<Registered>,
    // What messages go to.
    _arrivals: Arc<A>,
    // It does not leave its thread.
    _here: PhantomData<*const ()>,
}

/// Memory that others put to.
struct Registered {
    memory: Pointer,
    // Keeps it.
    _owner: Owner,
}

/// A way to a peer, and to its segment where that has bytes.
pub(crate) struct Endpoint {
    endpoint: Pointer,
    key: Option<Key>,
}

/// What a peer's memory is put to by. It is given back by [`Worker::forget`].
#[derive(Debug)]
pub(crate) struct Key(Pointer);

/// Something that goes on.
#[derive(Debug)]
pub(crate) struct Request(Pointer);

impl<A: Arrivals> Worker<A> {
    /// Loads the library and sets it up.
    pub(crate) fn open(library: Option<&Path>, arrivals: Arc<A>) -> Result<Worker<A>, Error> {
        let path = library.map_or_else(|| PathBuf::from(LIBRARY), Path::to_owned);
        let api = Api::load(&path).map_err(|error| Error::Config {
            name: crate::config::UCX,
            why: format!(
                "UCX can't be loaded: install Debian's libucx0, or name libucp.so ({error})"
            ),
        })?;
        let mut worker = Worker {
            api,
            context: null_mut(),
            worker: null_mut(),
            registered: Vec::new(),
            _arrivals: arrivals,
            _here: PhantomData,
        };
        worker.init()?;
        worker.create()?;
        worker.receive()?;
        Ok(worker)
    }

    fn init(&mut self) -> Result<(), Error> {
        let contexts = &self.api.contexts;
        let mut config = null_mut();
        // SAFETY: the places are there, the strings end with 0, and the configuration is one that was
        // read and is given back once.
        unsafe {
            let read = (contexts.config_read)(std::ptr::null(), std::ptr::null(), &raw mut config);
            checked("reading UCX's configuration", read)?;
            for (name, value) in SETTINGS {
                // A version that does not know one does without.
                (contexts.config_modify)(config, name.as_ptr(), value.as_ptr());
            }
            let params =
                raw::Params { mask: raw::HAS_FEATURES, features: raw::FEATURES, rest: [0; 16] };
            let (major, minor) = raw::VERSION;
            let done = (contexts.init)(major, minor, &params, config, &raw mut self.context);
            (contexts.config_release)(config);
            checked("starting UCX", done)
        }
    }

    fn create(&mut self) -> Result<(), Error> {
        let params =
            raw::WorkerParams { mask: raw::HAS_THREAD_MODE, thread_mode: 0, rest: [0; 32] };
        // SAFETY: the context was made, and the places are there.
        let done =
            unsafe { (self.api.workers.create)(self.context, &params, &raw mut self.worker) };
        checked("making a UCX worker", done)
    }

    fn receive(&mut self) -> Result<(), Error> {
        let params = raw::HandlerParams {
            mask: raw::HAS_HANDLER,
            id: MESSAGE,
            flags: 0,
            run: arrive::<A>,
            argument: Arc::as_ptr(&self._arrivals).cast_mut().cast(),
        };
        // SAFETY: the worker was made, and what the argument points to lives longer than it.
        let done = unsafe { (self.api.workers.receive)(self.worker, &params) };
        checked("receiving messages", done)
    }

    /// The library's version.
    pub(crate) fn version(&self) -> [u32; 3] {
        let [mut major, mut minor, mut release] = [0; 3];
        // SAFETY: the places are there.
        unsafe {
            (self.api.contexts.version)(&raw mut major, &raw mut minor, &raw mut release);
        }
        [major, minor, release]
    }

    /// What peers reach this worker by.
    pub(crate) fn address(&self) -> Result<Vec<u8>, Error> {
        let (mut start, mut length) = (null_mut(), 0);
        let workers = &self.api.workers;
        // SAFETY: the worker was made; the address is read before it is given back.
        unsafe {
            let got = (workers.address)(self.worker, &raw mut start, &raw mut length);
            checked("asking for a UCX address", got)?;
            let address = std::slice::from_raw_parts(start, length).to_vec();
            (workers.release_address)(self.worker, start);
            Ok(address)
        }
    }

    /// Whether it reaches memory of CUDA's devices.
    pub(crate) fn reaches_cuda(&self) -> bool {
        let mut said = raw::ContextAttributes {
            mask: raw::HAS_MEMORY_TYPES,
            request_size: 0,
            thread_mode: 0,
            memory_types: 0,
            rest: [0; 16],
        };
        // SAFETY: the context was made, and the place is there.
        let status = unsafe { (self.api.contexts.query)(self.context, &raw mut said) };
        status == raw::OK && said.memory_types & raw::CUDA != 0
    }

    /// Lets peers put to so many bytes from an address on, and returns the key that they need.
    ///
    /// # Safety
    ///
    /// These stay while `owner` lives, and nobody has references to them.
    pub(crate) unsafe fn register(
        &mut self,
        (start, bytes): (u64, u64),
        owner: Owner,
    ) -> Result<Vec<u8>, Error> {
        let params = raw::MemoryParams {
            mask: raw::HAS_PLACE,
            address: with_exposed_provenance_mut(start as usize),
            length: bytes as usize,
            rest: [0; 8],
        };
        let mut memory = null_mut();
        // SAFETY: the context was made; the rest is as the caller says, and unmapped before that is dropped.
        let done = unsafe { (self.api.memory.map)(self.context, &params, &raw mut memory) };
        checked("registering memory", done)?;
        self.registered.push(Registered { memory, _owner: owner });
        self.pack(memory)
    }

    /// What peers reach mapped memory by.
    fn pack(&self, mapped: Pointer) -> Result<Vec<u8>, Error> {
        let (mut start, mut length) = (null_mut(), 0);
        let memory = &self.api.memory;
        // SAFETY: the memory was mapped; the key is read before it is given back.
        unsafe {
            let got = (memory.pack_key)(self.context, mapped, &raw mut start, &raw mut length);
            checked("asking for the key of memory", got)?;
            let key = std::slice::from_raw_parts(start, length).to_vec();
            (memory.release_key)(start);
            Ok(key)
        }
    }

    /// Begins to connect to who has this address.
    pub(crate) fn connect(&self, address: &[u8]) -> Result<Endpoint, Error> {
        let doing = "connecting to a rank";
        if address.is_empty() {
            // The library is not told how long it is.
            return Err(failed(doing)(raw::INVALID));
        }
        let params = raw::EndpointParams {
            mask: raw::HAS_ADDRESS | raw::HAS_ERROR_MODE | raw::HAS_ERROR_HANDLER,
            address: address.as_ptr().cast(),
            error_mode: raw::MODE_PEER,
            error_handler: fail,
            error_argument: null_mut(),
            rest: [0; 16],
        };
        let mut endpoint = Endpoint { endpoint: null_mut(), key: None };
        // SAFETY: the worker was made, and the address is one that a worker gave.
        let made = unsafe {
            (self.api.endpoints.create)(self.worker, &params, &raw mut endpoint.endpoint)
        };
        checked(doing, made)?;
        Ok(endpoint)
    }

    /// Reaches the segment that a peer has this key to, if it has one.
    pub(crate) fn reach(&self, to: &mut Endpoint, key: &[u8]) -> Result<(), Error> {
        if !key.is_empty() {
            to.key = Some(self.unpack(to, key)?);
        }
        Ok(())
    }

    /// What puts to a peer's memory need, made of the key that the peer has told.
    pub(crate) fn unpack(&self, of: &Endpoint, key: &[u8]) -> Result<Key, Error> {
        let doing = "reading the key of memory";
        if key.is_empty() {
            // The library is not told how long it is.
            return Err(failed(doing)(raw::INVALID));
        }
        let mut unpacked = null_mut();
        // SAFETY: the endpoint is one of this worker, and the key one that the peer's worker gave.
        let got = unsafe {
            (self.api.endpoints.unpack_key)(of.endpoint, key.as_ptr(), &raw mut unpacked)
        };
        checked(doing, got)?;
        Ok(Key(unpacked))
    }

    /// Gives back a key that no put uses any more.
    pub(crate) fn forget(&self, key: Key) {
        // SAFETY: it was unpacked, and nobody else has it.
        unsafe { (self.api.endpoints.destroy_key)(key.0) };
    }

    /// Readable when there is progress to be made, after [`Worker::arm`].
    pub(crate) fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        let mut fd: c_int = -1;
        // SAFETY: the worker was made.
        let got = unsafe { (self.api.workers.descriptor)(self.worker, &raw mut fd) };
        checked("asking for UCX's descriptor", got)?;
        // SAFETY: the worker keeps it open.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether the descriptor tells of what comes from now on; if not there is something already.
    pub(crate) fn arm(&self) -> bool {
        // SAFETY: the worker was made.
        unsafe { (self.api.workers.arm)(self.worker) != raw::BUSY }
    }

    /// Makes some progress; returns whether there was any to be made.
    pub(crate) fn progress(&self) -> bool {
        // SAFETY: the worker was made, and this is no callback of it.
        unsafe { (self.api.workers.progress)(self.worker) > 0 }
    }

    /// Sends a message of a header and data.
    ///
    /// # Safety
    ///
    /// Both stay as they are until the request is over.
    pub(crate) unsafe fn send(
        &self,
        to: &Endpoint,
        (header, data): (&[u8], &[u8]),
    ) -> Result<Option<Request>, Status> {
        let (params, endpoints) = (params(0), &self.api.endpoints);
        // SAFETY: as the caller says, and the endpoint is one of this worker.
        let sent = unsafe {
            (endpoints.send)(
                to.endpoint,
                MESSAGE,
                header.as_ptr(),
                header.len(),
                data.as_ptr(),
                data.len(),
                &params,
            )
        };
        requested(sent)
    }

    /// Puts so many bytes from an address on to an address of the peer's memory: of that which `key` is for,
    /// or of its segment.
    ///
    /// # Safety
    ///
    /// They stay until the request is over, and so does the key.
    pub(crate) unsafe fn put(
        &self,
        (to, key): (&Endpoint, Option<&Key>),
        (start, bytes): (u64, u64),
        address: u64,
    ) -> Result<Option<Request>, Status> {
        let Key(key) = key.or(to.key.as_ref()).ok_or(raw::INVALID)?;
        let start = with_exposed_provenance(start as usize);
        // SAFETY: as the caller says; the endpoint and its key are of this worker.
        let put = unsafe {
            (self.api.endpoints.put)(to.endpoint, start, bytes as usize, address, *key, &params(0))
        };
        requested(put)
    }

    /// Is over when all that went to the peer is.
    pub(crate) fn flush(&self, to: &Endpoint) -> Result<Option<Request>, Status> {
        // SAFETY: the endpoint is one of this worker.
        requested(unsafe { (self.api.endpoints.flush)(to.endpoint, &params(0)) })
    }

    /// Ends what goes to a peer, all of which fails where that is by force.
    pub(crate) fn close(&self, endpoint: Endpoint, is_forced: bool) -> Option<Request> {
        let flags = if is_forced { raw::FORCE } else { 0 };
        endpoint.key.into_iter().for_each(|key| self.forget(key));
        // SAFETY: it is of this worker, and used no more.
        let closed = unsafe { (self.api.endpoints.close)(endpoint.endpoint, &params(flags)) };
        requested(closed).ok().flatten()
    }

    /// How a request ended; `None` while it goes on.
    pub(crate) fn ended(&self, request: &Request) -> Option<Result<(), Status>> {
        // SAFETY: it is freed once only, when it is over and given back.
        let status = unsafe { (self.api.requests.status)(request.0) };
        match status {
            raw::IN_PROGRESS => None,
            raw::OK => Some(Ok(())),
            error => Some(Err(error)),
        }
    }

    /// Gives back what is over.
    pub(crate) fn free(&self, request: Request) {
        // SAFETY: nobody else has it.
        unsafe { (self.api.requests.free)(request.0) };
    }

    /// Ends. Where any of what is left goes on, all of it stays as it is, with what that uses: UCX aborts the
    /// process if a worker goes in the middle of such.
    pub(crate) fn end<T>(self, left: Vec<(Request, T)>) {
        if left.iter().any(|(request, _)| self.ended(request).is_none()) {
            log::warn!("what UCX had under way did not end; its memory stays");
            return std::mem::forget((self, left));
        }
        left.into_iter().for_each(|(request, _)| self.free(request));
    }
}

/// What is always so: no rendezvous of UCX's own, which would have puts and messages wait for the other
/// end.
const SETTINGS: [(&CStr, &CStr); 1] = [(c"RNDV_THRESH", c"inf")];

fn params(flags: u32) -> raw::RequestParams {
    let mask = if flags == 0 { 0 } else { raw::HAS_FLAGS };
    raw::RequestParams { mask, flags, rest: [0; 12] }
}

fn requested(pointer: Pointer) -> Result<Option<Request>, Status> {
    raw::request(pointer).map(|request| request.map(Request))
}

/// UCX calls this for each message that comes.
unsafe extern "C" fn arrive<A: Arrivals>(
    argument: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    params: *const raw::ReceiveParams,
) -> Status {
    // SAFETY: the argument is what the worker keeps; UCX says how much there is of the others, which are
    // there while this runs.
    unsafe {
        let is_here = (*params).attributes & raw::RENDEZVOUS == 0;
        let length = if is_here { length } else { 0 };
        (*argument.cast_const().cast::<A>())
            .arrive(slice(header.cast(), header_length), slice(data.cast_const().cast(), length));
    }
    raw::OK
}

/// UCX calls this when a peer fails, of which this hears otherwise.
unsafe extern "C" fn fail(_: *mut c_void, _: Pointer, status: Status) {
    log::debug!("UCX says {status} of a rank");
}

/// # Safety
///
/// There are so many bytes, which stay as long as that, unless there are none.
unsafe fn slice<'a>(start: *const u8, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(start, length) }
}

impl<A: Arrivals> Drop for Worker<A> {
    fn drop(&mut self) {
        // SAFETY: each was made, is used no more, and goes before what it was made of.
        unsafe {
            for registered in &self.registered {
                (self.api.memory.unmap)(self.context, registered.memory);
            }
            if !self.worker.is_null() {
                (self.api.workers.destroy)(self.worker);
            }
            if !self.context.is_null() {
                (self.api.contexts.cleanup)(self.context);
            }
        }
    }
}
