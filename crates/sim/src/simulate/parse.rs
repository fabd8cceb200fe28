//! Workload files: docs/WORKLOADS.md says what stands in them.

use crate::simulate::error::WorkloadError;
use crate::simulate::workload::{Case, CopySpec, Workload};
use model::{FieldSpace, IndexSpace, Layout, MemoryId, Priority, Time, Topology};
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Copy {
    name: Option<String>,
    from: String,
    to: String,
    dims: String,
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
        Ok(Workload { name: file.name, cases: vec![case] })
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
        let space = self.space()?;
        let copy = CopySpec {
            name: self.name()?,
            from: self.memory("from", &raw.from)?,
            to: self.memory("to", &raw.to)?,
            layouts: [
                self.layout("from_layout", &raw.from_layout, &space)?,
                self.layout("to_layout", &raw.to_layout, &space)?,
            ],
            space,
            fields: self.fields()?,
            count: raw.count,
            priority: Priority(raw.priority),
            at: Time(raw.at_ns),
            after: self.after()?,
            compute: Duration::from_nanos(raw.compute_ns),
        };
        if copy.count == 0 {
            return Err(self.wrong("count", "at least one instance"));
        }
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

    fn space(&self) -> Checked<IndexSpace> {
        let one = |part| {
            let (name, extent) = str::split_once(part, '=')?;
            Some((name.trim(), extent.trim().parse().ok()?))
        };
        let dims: Option<Vec<(&str, u64)>> = self.raw.dims.split(',').map(one).collect();
        let what = "expected names with extents, as in x=64,y=32";
        let dims = dims.ok_or_else(|| self.wrong("dims", what))?;
        IndexSpace::of(&dims).map_err(|e| self.wrong("dims", e))
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

#[cfg(test)]
mod tests;
