//! Workload files: docs/WORKLOADS.md says what stands in them.

use crate::simulate::error::WorkloadError;
use crate::simulate::workload::{Case, CopySpec, Workload};
use model::{Dim, FieldSpace, IndexSpace, Layout, MemoryId, Priority, Time, Topology};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

type Checked<T> = Result<T, WorkloadError>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    name: String,
    copy: Vec<Copy>,
}

/// What is read of a trace: the rest is for programs that draw it.
#[derive(Debug, Deserialize)]
struct Trace {
    copy: Vec<Copy>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Copy {
    name: Option<String>,
    from: String,
    to: String,
    dims: Dims,
    fields: Vec<u64>,
    from_layout: String,
    to_layout: String,
    #[serde(default = "one")]
    count: u32,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    at_ns: u64,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    compute_ns: u64,
}

/// What is copied: whole instances, or boxes of them.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "dims: expected text, or a table of `box`, `from` and `to`")]
enum Dims {
    Whole(String),
    Box(BoxDims),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BoxDims {
    #[serde(rename = "box")]
    copied: String,
    from: Option<String>,
    to: Option<String>,
}

fn one() -> u32 {
    1
}

impl Workload {
    /// The workload of a TOML file, for `topology`: one case, called as the workload.
    ///
    /// ```
    /// let topology = cluster::ready_made("sapling").unwrap();
    /// let text = r#"
    ///     [[copy]]
    ///     from = "n0.sys"
    ///     to = "n1.fbm"
    ///     dims = "y=4096,x=1024"
    ///     fields = [4]
    ///     from_layout = "<F, x, y>"
    ///     to_layout = "<F, y, x>"
    ///     count = 8
    /// "#;
    /// let workload = isometry_sim::Workload::parse(text, &topology).unwrap();
    /// assert_eq!(workload.cases[0].copies[0].bytes(), 8 << 24);
    /// ```
    ///
    /// # Errors
    /// [`WorkloadError`], which names the line for what is not TOML, for unknown and missing keys
    /// and for values of a wrong type; the key for unknown or repeated names, for what is no
    /// dimension, field or layout, for a count of 0, and for sums beyond
    /// [`crate::MAX_TRANSFERS`] transfers or 63 bits of bytes.
    pub fn parse(text: &str, topology: &Topology) -> Result<Self, WorkloadError> {
        let file: File = toml::from_str(text).map_err(|e| WorkloadError::of_toml(text, &e))?;
        Self::of_file(&file, topology)
    }

    /// The workload of a trace that a machine wrote of a real run: every copy that was asked for,
    /// when it was, on `topology`, whose memories must have the names that the machine's had.
    ///
    /// # Errors
    /// As [`Workload::parse`].
    pub fn of_trace(text: &str, topology: &Topology) -> Result<Self, WorkloadError> {
        let trace: Trace = serde_json::from_str(text).map_err(|e| WorkloadError::of_json(&e))?;
        let file = File { name: "trace".to_owned(), copy: trace.copy };
        Self::of_file(&file, topology)
    }

    fn of_file(file: &File, topology: &Topology) -> Checked<Self> {
        let mut case = Case { name: file.name.clone(), copies: Vec::new() };
        let mut earlier = BTreeMap::new();
        for (at, raw) in file.copy.iter().enumerate() {
            let reader = Reader { topology, raw, key: format!("copy[{at}]"), earlier: &earlier };
            let copy = reader.read()?;
            earlier.insert(copy.name.clone(), at);
            case.copies.push(copy);
        }
        if case.copies.is_empty() {
            return Err(WorkloadError::value("copy", "a workload has at least one copy"));
        }
        case.check()?;
        Ok(Workload { name: file.name.clone(), cases: vec![case] })
    }
}

/// The most fields of a copy.
const MAX_FIELDS: usize = 1024;

/// One copy, the key under which it stands, and the names of those before it.
struct Reader<'a> {
    topology: &'a Topology,
    raw: &'a Copy,
    key: String,
    earlier: &'a BTreeMap<String, usize>,
}

impl Reader<'_> {
    fn read(&self) -> Checked<CopySpec> {
        let raw = self.raw;
        let (space, instances) = self.spaces()?;
        let copy = CopySpec {
            name: self.name()?,
            from: self.memory("from", &raw.from)?,
            to: self.memory("to", &raw.to)?,
            layouts: [
                self.layout("from_layout", &raw.from_layout, &instances[0])?,
                self.layout("to_layout", &raw.to_layout, &instances[1])?,
            ],
            instances,
            space,
            fields: self.fields()?,
            count: raw.count,
            priority: Priority(raw.priority),
            at: Time(raw.at_ns),
            after: self.after()?,
            compute: Duration::from_nanos(raw.compute_ns),
        };
        self.check_size(&copy)?;
        Ok(copy)
    }

    fn name(&self) -> Checked<String> {
        let name = self.raw.name.clone().unwrap_or_else(|| format!("copy{}", self.earlier.len()));
        match self.earlier.contains_key(&name) {
            true => Err(self.wrong("name", format!("`{name}` is there twice"))),
            false => Ok(name),
        }
    }

    fn fields(&self) -> Checked<FieldSpace> {
        if self.raw.fields.len() > MAX_FIELDS {
            return Err(self.wrong("fields", format!("{MAX_FIELDS} fields at most")));
        }
        FieldSpace::packed(&self.raw.fields).map_err(|e| self.wrong("fields", e))
    }

    fn memory(&self, key: &str, name: &str) -> Checked<MemoryId> {
        let found = self.topology.memory_named(name);
        found.ok_or_else(|| self.wrong(key, format!("there is no memory `{name}`")))
    }

    /// What is copied, and the instances that it is of.
    fn spaces(&self) -> Checked<(IndexSpace, [IndexSpace; 2])> {
        let boxed = match &self.raw.dims {
            Dims::Whole(dims) => {
                let space = self.space("dims", dims)?;
                return Ok((space.clone(), [space.clone(), space]));
            }
            Dims::Box(boxed) => boxed,
        };
        let space = self.space("dims.box", &boxed.copied)?;
        let instance = |key, dims: &Option<String>| match dims {
            Some(dims) => self.space(key, dims),
            None => Ok(space.clone()),
        };
        let instances = [instance("dims.from", &boxed.from)?, instance("dims.to", &boxed.to)?];
        Ok((space, instances))
    }

    fn space(&self, key: &str, dims: &str) -> Checked<IndexSpace> {
        let dims: Option<Vec<Dim>> = dims.split(',').map(dim).collect();
        let what = "expected names with extents or bounds, as in x=64,y=32..48";
        let dims = dims.ok_or_else(|| self.wrong(key, what))?;
        IndexSpace::new(dims).map_err(|e| self.wrong(key, e))
    }

    fn layout(&self, key: &str, text: &str, space: &IndexSpace) -> Checked<Layout> {
        layout::parse(text, space).map_err(|e| self.wrong(key, e))
    }

    fn after(&self) -> Checked<Vec<usize>> {
        let place = |(at, name): (usize, &String)| {
            let why = || format!("no copy listed earlier is called `{name}`");
            let found = self.earlier.get(name).copied();
            found.ok_or_else(|| self.wrong(&format!("after[{at}]"), why()))
        };
        let mut after: Vec<usize> =
            self.raw.after.iter().enumerate().map(place).collect::<Checked<_>>()?;
        after.sort_unstable();
        after.dedup();
        Ok(after)
    }

    /// An instance has fewer than 2^63 bytes in either layout.
    fn check_size(&self, copy: &CopySpec) -> Checked<()> {
        let bytes = copy.space.entries().checked_mul(copy.fields.item_bytes());
        if bytes.is_none_or(|bytes| bytes >= 1 << 63) {
            return Err(self.wrong("dims", "more bytes than 63 bits can number"));
        }
        for (key, layout) in ["from_layout", "to_layout"].into_iter().zip(&copy.layouts) {
            copy.footprint(layout).map_err(|e| self.wrong(key, e))?;
        }
        Ok(())
    }

    fn wrong(&self, key: &str, why: impl ToString) -> WorkloadError {
        WorkloadError::value(format!("{}.{key}", self.key), why.to_string())
    }
}

/// `x=64` or `x=32..48`.
fn dim(text: &str) -> Option<Dim> {
    let (name, bounds) = text.split_once('=')?;
    let number = |text: &str| text.trim().parse().ok();
    let (lo, hi) = match bounds.split_once("..") {
        Some((lo, hi)) => (number(lo)?, number(hi)?),
        None => (0, number(bounds).filter(|&extent| extent >= 0)?),
    };
    Some(Dim { name: name.trim().into(), lo, hi })
}

#[cfg(test)]
mod tests;
