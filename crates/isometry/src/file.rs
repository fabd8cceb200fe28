//! Files as instances: `.npy`, safetensors and raw.

use crate::disks::{check_path, parent};
use crate::instance::{Holding, Instance};
use crate::machine::Machine;
use crate::runtime::Shared;
use crate::view::View;
use crate::{ArgumentError, Array, Error};
use channel_disk::{Cache, FileRegion};
use files::{FileHeader, FilesError, Format, npy, raw, tensors};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// What a file doesn't say about itself.
#[derive(Debug, Clone, Default)]
pub struct FileOptions {
    /// Names for the dimensions, slowest first; `d0`, `d1`, … where there are none.
    pub dims: Option<Vec<String>>,
    /// The tensor of a safetensors file; may be left out where there is only one.
    pub tensor: Option<String>,
    /// What a raw file holds.
    pub raw: Option<Array>,
    /// Where a raw file's data starts.
    pub raw_offset: u64,
    /// Goes through the page cache rather than around it.
    pub buffered: bool,
}

impl Machine {
    /// The array in the file at `path`, for reading: `.npy` and `.safetensors` by their
    /// extension, anything else raw.
    ///
    /// # Errors
    /// [`Error::File`] for a header that is wrong, truncated or longer than the file, and for a
    /// raw file whose length is not its array's; [`ArgumentError::RawShape`],
    /// [`ArgumentError::NulInPath`], [`ArgumentError::FileOption`]; [`Error::Io`] where the file
    /// can't be opened or is a directory.
    pub fn open_file(
        &self,
        path: impl AsRef<Path>,
        options: &FileOptions,
    ) -> Result<Instance, Error> {
        open(&self.shared, path.as_ref(), options)
    }

    /// A file to be at `path`, in `array`'s layout. It appears under its name, replacing what is
    /// there, when a copy has covered all of it or [`Instance::commit`] is called, and is gone if
    /// neither happens before its last instance is dropped.
    ///
    /// # Errors
    /// [`Error::File`] where the format can't express the array; [`ArgumentError::NulInPath`],
    /// [`ArgumentError::FileOption`]; [`Error::Io`] where the disk has no room, where `path` is a
    /// directory or ends as one does, or where its directory is not there or can't be written.
    pub fn create_file(
        &self,
        path: impl AsRef<Path>,
        array: Array,
        options: &FileOptions,
    ) -> Result<Instance, Error> {
        create(&self.shared, path.as_ref(), array, options)
    }

    /// The names of the tensors in a safetensors file, by their position in it.
    ///
    /// # Errors
    /// [`Error::File`] for a broken header, [`Error::Io`] where the file can't be read,
    /// [`ArgumentError::NulInPath`].
    pub fn tensors(&self, path: impl AsRef<Path>) -> Result<Vec<String>, Error> {
        let path = path.as_ref();
        let (head, length) = head_of(path, Format::Safetensors)?;
        tensors::names(&head, length).map_err(|error| wrong(path, error))
    }
}

/// As [`Machine::open_file`].
pub(crate) fn open(
    shared: &Arc<Shared>,
    path: &Path,
    options: &FileOptions,
) -> Result<Instance, Error> {
    shared.check_open()?;
    let header = read_header(path, options)?;
    let memory = shared.disk_of(path)?;
    // From the file's first byte on: who places a buffer sees where the file's blocks begin.
    let span = 0..header.data_offset + header.data_bytes;
    let file = FileRegion::open(path, span, cache_of(options));
    let file = file.map_err(|e| Error::of_file(path, e))?;
    let holding = Arc::new(Holding::new(shared, file.into_region(memory), false));
    let array = Array { space: header.space, fields: header.fields, layout: header.layout };
    Ok(Instance::new(holding, header.data_offset, View::of_array(memory, array)))
}

/// As [`Machine::create_file`].
pub(crate) fn create(
    shared: &Arc<Shared>,
    path: &Path,
    array: Array,
    options: &FileOptions,
) -> Result<Instance, Error> {
    shared.check_open()?;
    check_path(path)?;
    // What is missing is told by the name that was given.
    std::fs::metadata(parent(path)).map_err(|e| Error::io(path, e))?;
    let memory = shared.disk_of(parent(path))?;
    let head = write_header(path, &array, options)?;
    let file = FileRegion::create(path, &head, array.bytes()?, cache_of(options));
    let file = file.map_err(|e| Error::of_file(path, e))?;
    let mut holding = Holding::new(shared, file.into_region(memory), true);
    holding.is_created = true;
    let holding = Arc::new(holding);
    shared.note_created(&holding);
    Ok(Instance::new(holding, 0, View::of_array(memory, array)))
}

fn cache_of(options: &FileOptions) -> Cache {
    if options.buffered { Cache::Use } else { Cache::Bypass }
}

fn wrong(path: &Path, error: FilesError) -> Error {
    Error::File { path: path.to_owned(), error }
}

fn read_header(path: &Path, options: &FileOptions) -> Result<FileHeader, Error> {
    let names: Option<Vec<&str>> =
        options.dims.as_ref().map(|d| d.iter().map(String::as_str).collect());
    let names = names.as_deref();
    let format = Format::of_path(path);
    check_options(format, options)?;
    let (head, length) = head_of(path, format)?;
    let header = match format {
        Format::Npy => npy::read(&head, length, names),
        Format::Safetensors => tensors::read(&head, length, options.tensor.as_deref(), names),
        Format::Raw => {
            let array = options.raw.as_ref().ok_or(ArgumentError::RawShape)?;
            raw::read((&array.space, &array.fields), &array.layout, options.raw_offset, length)
        }
    };
    header.map_err(|error| wrong(path, error))
}

/// Refuses what would be left out of account: the file says it otherwise.
fn check_options(format: Format, options: &FileOptions) -> Result<(), ArgumentError> {
    let raw = options.raw.is_some() || options.raw_offset != 0;
    let what = match format {
        Format::Npy | Format::Safetensors if raw => "an element type with extents",
        Format::Npy | Format::Raw if options.tensor.is_some() => "the name of a tensor",
        _ => return Ok(()),
    };
    Err(ArgumentError::FileOption { what, format })
}

/// The header's bytes, and the length of the file.
fn head_of(path: &Path, format: Format) -> Result<(Vec<u8>, u64), Error> {
    check_path(path)?;
    let fail = |e| Error::io(path, e);
    // Before it is opened: opening a pipe waits for a writer.
    let meta = std::fs::metadata(path).map_err(fail)?;
    if meta.is_dir() {
        return Err(fail(rustix::io::Errno::ISDIR.into()));
    }
    if !meta.is_file() {
        return Err(fail(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "is not a regular file",
        )));
    }
    let mut file = File::open(path).map_err(fail)?;
    let preamble = match format {
        Format::Npy => npy::PREAMBLE_BYTES,
        Format::Safetensors => tensors::PREAMBLE_BYTES,
        Format::Raw => 0,
    } as u64;
    let mut head = Vec::new();
    file.by_ref().take(preamble).read_to_end(&mut head).map_err(fail)?;
    let bytes = match format {
        Format::Npy => npy::head_bytes(&head),
        Format::Safetensors => tensors::head_bytes(&head),
        Format::Raw => Ok(0),
    };
    let more = bytes.map_err(|error| wrong(path, error))?.saturating_sub(head.len() as u64);
    file.take(more).read_to_end(&mut head).map_err(fail)?;
    Ok((head, meta.len()))
}

fn write_header(path: &Path, array: &Array, options: &FileOptions) -> Result<Vec<u8>, Error> {
    let name = options.tensor.as_deref().unwrap_or("data");
    let format = Format::of_path(path);
    check_options(format, options)?;
    let head = match format {
        Format::Npy => npy::write(&array.space, &array.fields, &array.layout),
        Format::Safetensors => tensors::write(&array.space, &array.fields, &array.layout, name),
        Format::Raw => Ok(Vec::new()),
    };
    head.map_err(|error| wrong(path, error))
}

/// Gives the created file that `holding` is its name.
pub(crate) fn commit(holding: &Holding, sync: bool) -> Result<(), Error> {
    let file = holding.region.view::<FileRegion>().filter(|_| holding.is_created);
    let file = file.ok_or(ArgumentError::NothingToCommit)?;
    holding.shared.check_open()?;
    if !file.is_pending() {
        return Err(ArgumentError::NotPending { path: file.path().to_owned() }.into());
    }
    file.commit(sync).map_err(|e| Error::of_file(file.path(), e))
}

/// Deletes the created file that `holding` is, unless it was committed.
pub(crate) fn discard(holding: &Holding) {
    let file = holding.region.view::<FileRegion>().filter(|_| holding.is_created);
    if let Some(Err(error)) = file.map(FileRegion::abort) {
        log::warn!("a temporary file stays until the next run: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::prepare;
    use engine::{ChannelConfig, Engine, EngineConfig, PoolConfig, Transfer};
    use model::{ChannelKind, Completion, RegionId, Request, Time, Work};

    /// The requests of a copy with 8 MiB of staging, whose region has the index `u32::MAX`.
    fn requests_of(
        machine: &Machine,
        src: &Instance,
        dst: &Instance,
    ) -> Vec<(ChannelKind, Request)> {
        let options = planner::Options { th_bytes: Some(2 << 20), ..Default::default() };
        let (prepared, _) = prepare(&machine.shared, &src.view, &dst.view, &options).unwrap();
        let hops = &prepared.plan.hops;
        let channels = hops.iter().map(|hop| ChannelConfig::new(hop.channel, 4)).collect();
        let region = RegionId { index: u32::MAX, generation: 0 };
        let (memory, bytes) = (machine.shared.memory_named("sys").unwrap(), 8 << 20);
        let pool = PoolConfig { memory, region, capacity_bytes: bytes, reserve_bytes: 0 };
        let mut engine = Engine::new(EngineConfig::new(channels, vec![pool]));
        let program = Arc::clone(&prepared.program);
        engine.submit(Time(0), Transfer::new(program, src.place(), dst.place())).unwrap();
        let mut made = Vec::new();
        while let Some(request) = engine.poll_request() {
            engine.handle_completion(Time(0), Completion { request: request.id, result: Ok(()) });
            made.push((hops[usize::from(request.hop)].kind, request));
        }
        made
    }

    #[test]
    fn requests_are_on_the_same_boundaries_in_file_and_memory() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::builder().assume(true).lanes(1).staging(8 << 20).open().unwrap();
        let array = Array::of(&[("y", 4096), ("x", 4096)], "|u1").unwrap();
        // As NumPy writes: the data starts at a multiple of 64.
        let path = dir.path().join("in.bin");
        File::create(&path).unwrap().set_len(128 + (4096 << 12)).unwrap();
        let raw = Some(array.clone());
        let options = FileOptions { raw, raw_offset: 128, ..FileOptions::default() };
        let src = machine.open_file(&path, &options).unwrap();
        let turned = array.laid_out("xy").unwrap();
        let dst = machine
            .create_file(dir.path().join("out.npy"), turned, &FileOptions::default())
            .unwrap();
        let (mut reads, mut writes) = (0, 0);
        for (kind, request) in requests_of(&machine, &src, &dst) {
            let Work::Copy(copy) = &request.work else { unreachable!("no commit was asked for") };
            let first = &copy.list[0].fields[0];
            let from = copy.src.offset.wrapping_add_signed(first.src_offset);
            let to = copy.dst.offset.wrapping_add_signed(first.dst_offset);
            let (file, count) = match kind {
                ChannelKind::DiskRead => (&src, &mut reads),
                ChannelKind::DiskWrite => (&dst, &mut writes),
                _ => continue,
            };
            let view = file.holding.region.view::<FileRegion>().unwrap();
            assert_eq!((from + view.data_offset()) % 512, to % 512, "{kind:?} {from} {to}");
            *count += 1;
        }
        assert!(reads > 1 && writes > 1, "{reads} reads, {writes} writes");
    }
}
