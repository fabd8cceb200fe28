//! Families of cases: what `bench/problems/kernels/*.toml` are made of.
//!
//! A family is a case with blanks: `{name}` in any of its texts stands for a value of `for` (every
//! value of every name, all combinations) or of the columns of `rows` (row by row).

use super::problem::{Listed, Problem};
use crate::{Error, problems};
use model::Crossover;
use model::{Field, FieldSpace, IndexSpace};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The files, by name.
const FILES: [(&str, &str); 8] = [
    ("kernels/transposes", include_str!("../../../../../bench/problems/kernels/transposes.toml")),
    (
        "kernels/permutations",
        include_str!("../../../../../bench/problems/kernels/permutations.toml"),
    ),
    ("kernels/structures", include_str!("../../../../../bench/problems/kernels/structures.toml")),
    ("kernels/blocks", include_str!("../../../../../bench/problems/kernels/blocks.toml")),
    ("kernels/images", include_str!("../../../../../bench/problems/kernels/images.toml")),
    ("kernels/pages", include_str!("../../../../../bench/problems/kernels/pages.toml")),
    ("kernels/lines", include_str!("../../../../../bench/problems/kernels/lines.toml")),
    ("kernels/crossover", include_str!("../../../../../bench/problems/kernels/crossover.toml")),
];

/// How often each contender runs, unless a family says otherwise.
const RUNS: usize = 11;

/// All problems, in the order of the files, on a machine of this crossover.
pub(super) fn problems(crossover: Crossover) -> Result<Vec<Problem>, Error> {
    let mut all = Vec::new();
    for (name, text) in FILES {
        all.extend(problems_in(name, text, crossover)?);
    }
    Ok(all)
}

/// The problems of the file `name`, which stand in `text`.
pub(super) fn problems_in(
    name: &'static str,
    text: &str,
    crossover: Crossover,
) -> Result<Vec<Problem>, Error> {
    let file: File = problems::read(name, text)?;
    let mut all = Vec::new();
    for family in &file.family {
        let wrong = |why: String| Error::Problems { group: name, why };
        for values in family.combinations().map_err(wrong)? {
            let cases = family.with(&values, crossover).map_err(wrong)?;
            all.extend(
                cases.into_iter().map(|case| Problem { behind_line: file.behind_line, ..case }),
            );
        }
    }
    Ok(all)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// How far behind the start of a line destinations begin, if they do not on one.
    #[serde(default)]
    behind_line: u64,
    family: Vec<Family>,
}

/// A case, blanks and all, and what to fill them with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    name: String,
    /// What the way back is called, where it is a case too.
    back: Option<String>,
    /// Names and extents, slowest first; the one that is `?` fills `payload_bytes`.
    dims: String,
    /// A number, or which part of which crossover, as in `turned 0.5`: both kinds of stores are timed
    /// then.
    payload_bytes: Option<Value>,
    /// A structure: `f4`, `8*f4`, `aligned u1,u2,f4`: NumPy's letters, which only say what it is
    /// called, and sizes; `aligned` pads it as C does.
    fields: String,
    from: String,
    to: String,
    /// `take DIM` or `put DIM`: its positions in a random order, on that side.
    list: Option<String>,
    runs: Option<usize>,
    /// Names and all their values.
    #[serde(default)]
    r#for: BTreeMap<String, Vec<Value>>,
    /// Names whose values stand in `rows`.
    #[serde(default)]
    columns: Vec<String>,
    #[serde(default)]
    rows: Vec<Vec<Value>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Value {
    Number(u64),
    Text(String),
}

impl Value {
    fn text(&self) -> String {
        match self {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
        }
    }
}

/// Names and values.
type Values = Vec<(String, String)>;

impl Family {
    fn combinations(&self) -> Result<Vec<Values>, String> {
        let mut all: Vec<Values> = vec![Vec::new()];
        if !self.columns.is_empty() {
            all = self.rows.iter().map(|row| self.row(row)).collect::<Result<_, _>>()?;
        }
        for (name, values) in &self.r#for {
            let each = |before: &Values, value: &Value| {
                before.iter().cloned().chain([(name.clone(), value.text())]).collect()
            };
            all = all.iter().flat_map(|b| values.iter().map(move |v| each(b, v))).collect();
        }
        Ok(all)
    }

    fn row(&self, row: &[Value]) -> Result<Values, String> {
        if row.len() != self.columns.len() {
            return Err(wrong(&self.name, "a row has not as many values as there are columns"));
        }
        Ok(self.columns.iter().cloned().zip(row.iter().map(Value::text)).collect())
    }

    /// The case with these values, and its way back.
    fn with(&self, values: &Values, crossover: Crossover) -> Result<Vec<Problem>, String> {
        let fill = |text: &str| {
            values.iter().fold(text.to_owned(), |t, (n, v)| t.replace(&format!("{{{n}}}"), v))
        };
        let name = fill(&self.name);
        if name.contains(['{', '}']) {
            return Err(wrong(&name, "a blank has no value"));
        }
        let fields = fields(&fill(&self.fields))
            .ok_or_else(|| wrong(&name, "fields should be letters and sizes, as in `u1,2*f4`"))?;
        let payload =
            self.payload_bytes.as_ref().map(|bytes| payload(&fill(&bytes.text()), crossover));
        let payload = payload.transpose().map_err(|why| wrong(&name, why))?;
        let space = space(&fill(&self.dims), payload, &fields)
            .ok_or_else(|| wrong(&name, "dims should be as in `y=64, x=?`"))?;
        let parsed = |text: &str| {
            layout::parse(&fill(text), &space).map_err(|e| wrong(&name, &e.to_string()))
        };
        let (from, to) = (parsed(&self.from)?, parsed(&self.to)?);
        let list = self.list.as_ref().map(|l| listed(&fill(l), &space));
        let list = list.transpose().map_err(|why| wrong(&name, why))?;
        let runs = self.runs.unwrap_or(RUNS);
        let both_stores = payload.is_some_and(|p| p.1);
        let behind_line = 0;
        let there = Problem { name, space, fields, from, to, list, behind_line, both_stores, runs };
        let back = self.back.as_ref().map(|back| Problem {
            name: fill(back),
            from: there.to.clone(),
            to: there.from.clone(),
            ..there.clone()
        });
        Ok([there].into_iter().chain(back).collect())
    }
}

fn wrong(name: &str, why: &str) -> String {
    format!("`{name}`: {why}")
}

/// `8*f4,u2` as a structure.
fn fields(text: &str) -> Option<FieldSpace> {
    let (aligned, list) = text.strip_prefix("aligned ").map_or((false, text), |list| (true, list));
    let mut sizes = Vec::new();
    for part in list.split(',') {
        let (count, one) = part.split_once('*').unwrap_or(("1", part));
        let bytes: u64 =
            one.trim().trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()?;
        sizes.extend(std::iter::repeat_n(bytes, count.trim().parse().ok()?));
    }
    if !aligned {
        return FieldSpace::packed(&sizes).ok();
    }
    let mut end = 0u64;
    let mut place = |(i, &bytes): (usize, &u64)| {
        let offset = end.next_multiple_of(bytes);
        end = offset + bytes;
        Field { name: format!("f{i}").into(), bytes, offset, dtype: "".into() }
    };
    let fields: Vec<Field> = sizes.iter().enumerate().map(&mut place).collect();
    let item_bytes = end.next_multiple_of(sizes.iter().copied().max()?);
    FieldSpace::new(fields, item_bytes).ok()
}

/// `1000` or `turned 0.5` in bytes, and whether it is a part of a crossover.
fn payload(text: &str, crossover: Crossover) -> Result<(u64, bool), &'static str> {
    let Some((of, part)) = text.split_once(' ') else {
        return Ok((text.parse().map_err(|_| "`payload_bytes` is no number")?, false));
    };
    let bytes = match of {
        "in_order" => crossover.in_order,
        "turned" => crossover.turned,
        _ => return Err("`payload_bytes` should be as in `in_order 0.5` or `turned 0.5`"),
    };
    let part: f64 = part.parse().map_err(|_| "the part of `payload_bytes` is no number")?;
    Ok(((part * bytes as f64) as u64, true))
}

/// `y=64, x=?`, where `?` is as much as the payload allows: a multiple of 64 from 64 on, or of 4 where it
/// is a part of a crossover, which it should be near.
fn space(text: &str, payload: Option<(u64, bool)>, fields: &FieldSpace) -> Option<IndexSpace> {
    let parts: Option<Vec<_>> = text.split(',').map(|part| part.split_once('=')).collect();
    let known = |extent: &str| extent.trim().parse::<u64>().ok().filter(|&e| e > 0);
    let entry: u64 = fields.fields().iter().map(|f| f.bytes).sum();
    let others: u64 = parts.as_ref()?.iter().filter_map(|(_, extent)| known(extent)).product();
    let dim = |(name, extent): &(&str, &str)| {
        let filled = || {
            let (bytes, is_part) = payload?;
            let (most, unit) = (bytes / (others * entry), if is_part { 4 } else { 64 });
            Some(if most > unit { most / unit * unit } else { most }).filter(|&e| e > 0)
        };
        let extent = if extent.trim() == "?" { filled() } else { known(extent) };
        Some((name.trim().to_owned(), extent?))
    };
    let dims: Option<Vec<(String, u64)>> = parts?.iter().map(dim).collect();
    let dims = dims?;
    let dims: Vec<_> = dims.iter().map(|(name, extent)| (&**name, *extent)).collect();
    IndexSpace::of(&dims).ok()
}

fn listed(text: &str, space: &IndexSpace) -> Result<(Listed, usize), &'static str> {
    let (side, name) = text.split_once(' ').ok_or("`list` should be as in `take page`")?;
    let dim = space.position(name).ok_or("`list` names no dimension")?;
    match side {
        "take" => Ok((Listed::Take, dim)),
        "put" => Ok((Listed::Put, dim)),
        _ => Err("`list` should be as in `take page`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const FAMILY: &str = "[[family]]\nname = '{way} {n}*{t}'\nback = 'back {way} {n}*{t}'\n\
        dims = 'y=2, x=?'\npayload_bytes = 100000\nfields = '{n}*{t},u1'\nfrom = '<F, x, y>'\n\
        to = '<x, F, y>'\nlist = '{way} y'\nfor.way = ['take', 'put']\ncolumns = ['n', 't']\n\
        rows = [[2, 'f4'], [1, 'V12']]\n";

    #[test]
    fn a_family_is_every_value_with_every_row_and_the_way_back() {
        let all = problems_in("kernels/a", FAMILY, Crossover::default()).unwrap();
        let names: Vec<_> = all.iter().map(|p| &*p.name).collect();
        assert_eq!(names[..4], ["take 2*f4", "back take 2*f4", "put 2*f4", "back put 2*f4"]);
        assert_eq!(names.len(), 8);
        let sizes = |p: &Problem| p.fields.fields().iter().map(|f| f.bytes).collect::<Vec<_>>();
        assert_eq!(sizes(&all[0]), [4, 4, 1]);
        assert_eq!(sizes(&all[7]), [12, 1]);
        assert_eq!((&all[0].from, &all[0].to), (&all[1].to, &all[1].from));
        assert_eq!(all[0].list, Some((Listed::Take, 0)));
        // 100000 / 2 / 9 is 5555.
        assert_eq!(all[0].space.extents(), [2, 5504]);
    }

    #[test]
    fn a_payload_may_be_a_part_of_the_crossover() {
        let text = FAMILY.replace("= 100000", "= 'turned 0.5'");
        let all =
            problems_in("kernels/a", &text, Crossover { in_order: 1, turned: 200_000 }).unwrap();
        assert!(all[0].both_stores && all[1].both_stores);
        assert_eq!(all[0].space.extents(), [2, 5552]);
        let plain = problems_in("kernels/a", FAMILY, Crossover::default()).unwrap();
        assert!(!plain[0].both_stores);
    }

    #[test]
    fn an_aligned_structure_is_padded_as_c_does_it() {
        let fields = fields("aligned u1,f8,u2,f4").unwrap();
        let offsets: Vec<_> = fields.fields().iter().map(|f| f.offset).collect();
        assert_eq!((offsets, fields.item_bytes()), (vec![0, 8, 16, 20], 24));
    }

    #[test]
    fn what_is_wrong_is_said_by_name() {
        let refusal = |from: &str, to: &str| {
            let text = FAMILY.replace(from, to);
            let read = problems_in("kernels/a", &text, Crossover::default());
            read.map(|_| ()).unwrap_err().to_string()
        };
        assert!(refusal("x=?", "x").starts_with("bench/problems/kernels/a.toml: "));
        assert!(refusal("'{n}*{t},u1'", "'{n}*{t},u'").contains("`take 2*f4`: fields should"));
        assert!(refusal("x=?", "x").contains("dims should"));
        assert!(refusal("payload_bytes = 100000\n", "").contains("dims should"));
        assert!(refusal("'<x, F, y>'", "'<x, y>'").contains("`take 2*f4`"));
        assert!(refusal("'{way} y'", "'{way} z'").contains("no dimension"));
        assert!(refusal("['take', 'put']", "['give']").contains("as in `take page`"));
        assert!(refusal("[2, 'f4']", "[2]").contains("columns"));
        assert!(refusal("= 100000", "= 'turned half'").contains("the part of `payload_bytes`"));
        assert!(refusal("= 100000", "= 'upset 0.5'").contains("as in `in_order 0.5`"));
        assert!(refusal("= 100000", "= 'much'").contains("`payload_bytes` is no number"));
        assert!(refusal("columns = ['n'", "columns = ['m'").contains("no value"));
        assert!(refusal("rows =", "lines =").contains("lines"));
    }

    #[test]
    fn parts_of_a_crossover_lie_on_the_side_that_they_say() {
        for mib in [1.0, 1.5, 3.0, 12.0] {
            let from = (mib * f64::from(1 << 20)) as u64;
            let all = problems(Crossover { in_order: from, turned: from }).unwrap();
            let parts = all.iter().filter(|problem| problem.both_stores);
            for problem in parts {
                let (name, bytes) = (&problem.name, problem.payload_bytes());
                let above = ["x1.1:", "x2:", "x4:"].iter().any(|part| name.contains(part));
                assert_eq!(bytes >= from, above, "{name} of {mib} MiB");
            }
        }
    }

    #[test]
    fn the_problems_can_be_read_and_their_names_differ() {
        let all = problems(Crossover::default()).unwrap();
        let names: BTreeSet<_> = all.iter().map(|p| &p.name).collect();
        assert_eq!(names.len(), all.len());
        let permutations = all.iter().filter(|p| p.name.starts_with("permutation "));
        assert_eq!(permutations.count(), 57);
    }
}
