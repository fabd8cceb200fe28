//! What the files `bench/problems/GROUP.toml` are made of.

use crate::Error;
use isometry::Array;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The problems of `group`, which stand in `text`.
///
/// # Errors
/// What is wrong with the file, with the line that says so.
pub(crate) fn read<T: DeserializeOwned>(group: &'static str, text: &str) -> Result<T, Error> {
    toml::from_str(text).map_err(|e| Error::Problems { group, why: e.to_string() })
}

/// Names and extents, slowest first: `y=8192, x=8192`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Dims(Vec<(String, u64)>);

impl Dims {
    /// As [`Array::of`] wants them.
    pub(crate) fn pairs(&self) -> Vec<(&str, u64)> {
        self.0.iter().map(|(name, extent)| (&**name, *extent)).collect()
    }
}

impl TryFrom<String> for Dims {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let one = |part: &str| {
            let (name, extent) = part.split_once('=')?;
            Some((name.trim().to_owned(), extent.trim().parse().ok().filter(|&e| e > 0)?))
        };
        let all: Option<Vec<_>> = text.split(',').map(one).collect();
        all.map(Dims).ok_or_else(|| {
            format!("`{text}` should be names with extents, slowest first, as in `y=64, x=32`")
        })
    }
}

/// A copy of an array that changes its layout.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Conversion {
    /// What the case is called.
    pub(crate) name: String,
    /// Its dimensions.
    dims: Dims,
    /// The type of its entries, as NumPy writes it.
    dtype: String,
    /// The source's layout.
    from: String,
    /// The destination's layout.
    to: String,
    /// How often each contender runs.
    pub(crate) runs: usize,
}

impl Conversion {
    /// The source's array and the destination's.
    pub(crate) fn arrays(&self) -> Result<[Array; 2], Error> {
        let array = Array::of(&self.dims.pairs(), &self.dtype)?;
        Ok([array.clone().laid_out(&self.from)?, array.laid_out(&self.to)?])
    }

    /// What either of them holds.
    pub(crate) fn bytes(&self) -> Result<u64, Error> {
        Ok(self.arrays()?[0].bytes()?)
    }
}

/// A file that has conversions only.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Conversions {
    /// Its cases.
    pub(crate) case: Vec<Conversion>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[[case]]\nname = 'a'\ndims = 'y=3, x=4'\ndtype = '<f4'\nfrom = 'yx'\n\
                        to = 'xy'\nruns = 5\n";

    fn refusal(text: &str) -> String {
        read::<Conversions>("convert", text).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_conversion_is_two_arrays() {
        let cases = read::<Conversions>("convert", GOOD).unwrap().case;
        let [from, to] = cases[0].arrays().unwrap();
        assert_eq!((from.bytes().unwrap(), to.bytes().unwrap()), (48, 48));
        assert_ne!(from.layout, to.layout);
    }

    #[test]
    fn an_error_says_where() {
        let wrong = refusal(&GOOD.replace("y=3, x=4", "y=3, x"));
        assert!(wrong.starts_with("bench/problems/convert.toml: "), "{wrong}");
        assert!(wrong.contains("line 3") && wrong.contains("as in `y=64, x=32`"), "{wrong}");
        assert!(refusal(&GOOD.replace("runs", "turns")).contains("turns"));
        assert!(refusal(&GOOD.replace("to = 'xy'\n", "")).contains("missing field `to`"));
        assert!(refusal(&GOOD.replace("x=4", "x=0")).contains("line 3"));
    }
}
