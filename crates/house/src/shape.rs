//! Short functions, small files, few parameters, no God struct (STYLE.md, 11 and 12).

use crate::{Finding, Source};

/// The most code lines of a function.
pub const FUNCTION_LINES: usize = 70;
/// The most lines of a file, its tests not counted.
pub const FILE_LINES: usize = 600;
/// The most parameters of a function, a receiver among them.
pub const PARAMETERS: usize = 5;
/// The most fields of a struct or variant.
pub const FIELDS: usize = 12;
/// What half of all functions stay under.
pub const MEDIAN_LINES: usize = 8;
/// What nine in ten functions stay under.
pub const P90_LINES: usize = 25;

/// Functions with more than [`FUNCTION_LINES`] lines of code.
#[must_use]
pub fn long_functions(source: &Source) -> Vec<Finding> {
    let long = source.functions.iter().filter(|f| f.code_lines > FUNCTION_LINES);
    let what = |name: &str, lines| format!("`{name}` has {lines} lines; {FUNCTION_LINES} at most");
    long.map(|f| Finding::new(&source.path, f.line, what(&f.name, f.code_lines))).collect()
}

/// Functions with more than [`PARAMETERS`] parameters that don't say why beside themselves, by
/// `#[expect(clippy::too_many_arguments, reason = "…")]`.
#[must_use]
pub fn many_parameters(source: &Source) -> Vec<Finding> {
    let many = source.functions.iter().filter(|f| f.parameters > PARAMETERS && !f.excused);
    let what = |name: &str, n| format!("`{name}` has {n} parameters; {PARAMETERS} at most");
    many.map(|f| Finding::new(&source.path, f.line, what(&f.name, f.parameters))).collect()
}

/// Structs and variants with more than [`FIELDS`] fields.
#[must_use]
pub fn many_fields(source: &Source) -> Vec<Finding> {
    let many = source.structures.iter().filter(|s| s.fields > FIELDS);
    let what = |name: &str, n| format!("`{name}` has {n} fields; {FIELDS} at most");
    many.map(|s| Finding::new(&source.path, s.line, what(&s.name, s.fields))).collect()
}

/// A file with more than [`FILE_LINES`] lines beside its tests.
#[must_use]
pub fn long_file(source: &Source) -> Option<Finding> {
    let tests: usize = source.test_lines.iter().map(|r| r.end() + 1 - r.start()).sum();
    let lines = source.lines.len() - tests;
    let what = format!("{lines} lines without tests; {FILE_LINES} at most: split it by topic");
    (!source.is_test && lines > FILE_LINES).then(|| Finding::new(&source.path, FILE_LINES, what))
}

/// Median and ninetieth percentile of the lines of all functions that are not tests; zeros where
/// there is none.
#[must_use]
pub fn spread(sources: &[Source]) -> (usize, usize) {
    let shipped = sources.iter().filter(|s| !s.is_test);
    let functions = shipped.flat_map(|s| &s.functions).filter(|f| !f.is_test);
    let mut lines: Vec<_> = functions.map(|f| f.code_lines).collect();
    lines.sort_unstable();
    let at = |percent: usize| lines.get(lines.len() * percent / 100).copied().unwrap_or(0);
    (at(50), at(90))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::parse("crates/a/src/lib.rs", text)
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "f();\n".repeat(lines))
    }

    #[test]
    fn a_long_function_is_found() {
        assert_eq!(long_functions(&source(&function(70))), []);
        let found = long_functions(&source(&function(71)));
        assert_eq!(found[0].to_string(), "crates/a/src/lib.rs:1: `long` has 71 lines; 70 at most");
    }

    #[test]
    fn six_parameters_are_found_unless_excused() {
        let text = "fn f(a: A, b: A, c: A, d: A, e: A, f: A) {}";
        assert_eq!(many_parameters(&source(text)).len(), 1);
        let excuse = "#[expect(clippy::too_many_arguments, reason = \"Python's\")]";
        assert_eq!(many_parameters(&source(&format!("{excuse}\n{text}"))), []);
        assert_eq!(many_parameters(&source(&format!("extern \"C\" {text}"))), []);
        let method = "impl S { fn f(&self, b: A, c: A, d: A, e: A, f: A) {} }";
        assert_eq!(many_parameters(&source(method)).len(), 1);
    }

    #[test]
    fn a_god_struct_is_found() {
        let fields: String = (0..13).map(|i| format!("f{i}: u8, ")).collect();
        assert_eq!(many_fields(&source(&format!("struct S {{ {fields} }}"))).len(), 1);
        assert_eq!(many_fields(&source(&format!("enum E {{ V {{ {fields} }} }}"))).len(), 1);
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let code = "const A: u8 = 0;\n";
        assert_eq!(long_file(&source(&code.repeat(600))), None);
        assert!(long_file(&source(&code.repeat(601))).is_some());
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", code.repeat(300));
        assert_eq!(long_file(&source(&(code.repeat(400) + &tests))), None);
    }

    #[test]
    fn the_spread_leaves_tests_out() {
        let shipped: String = (1..=10).map(function).collect();
        let tests = format!("#[cfg(test)]\nmod tests {{ {} }}", function(60));
        assert_eq!(spread(&[source(&(shipped + &tests))]), (6, 10));
    }
}
