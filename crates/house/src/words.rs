//! What no committed text says.

use crate::{File, Finding};

/// Words that mark work left undone. Written in halves, so that this file passes.
const UNDONE: [&str; 7] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("#[ig", "nore"),
    concat!("db", "g!"),
];

/// Paths that exist on a developer's machine only.
const MACHINE: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("bash", "_jobs")];

/// Hosts of package registries: whoever builds chooses theirs.
const HOSTS: [&str; 6] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("debian", ".org"),
    concat!("npmjs", ".org"),
    concat!("golang", ".org"),
];

/// Marks of undone work, paths of one machine and registries' hosts in `file`, but in a lock file,
/// which names its registry.
#[must_use]
pub fn unwanted(file: &File) -> Vec<Finding> {
    if file.path == "Cargo.lock" {
        return Vec::new();
    }
    let lines = file.text.lines().enumerate();
    lines.filter_map(|(i, line)| what(line).map(|w| Finding::new(&file.path, i + 1, w))).collect()
}

fn what(line: &str) -> Option<String> {
    let found = |words: &[&'static str]| words.iter().copied().find(|word| has(line, word));
    found(&UNDONE)
        .map(|w| format!("`{w}`: do it, or open an issue"))
        .or_else(|| found(&MACHINE).map(|w| format!("`{w}` is a path of one machine")))
        .or_else(|| found(&HOSTS).map(|w| format!("`{w}` is a registry's host")))
}

/// Whether `word` stands in `line` and no letter joins it on either side.
fn has(line: &str, word: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let open = word.starts_with(|c: char| c.is_ascii_alphanumeric());
    let close = word.ends_with(|c: char| c.is_ascii_alphanumeric());
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !(open && letter(before) || close && letter(after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let file = File { path: "a.md".into(), text: text.into() };
        unwanted(&file).iter().map(|f| f.line).collect()
    }

    #[test]
    fn every_unwanted_word_is_found() {
        for word in UNDONE.iter().chain(&MACHINE).chain(&HOSTS) {
            assert_eq!(lines(&format!("fine\nfoo {word} bar\n")), [2], "{word}");
        }
    }

    #[test]
    fn longer_words_and_lock_files_are_fine() {
        assert_eq!(lines(concat!("MASTO", "DON XX", "XX frame", "work/s\n")), []);
        let text = concat!("registry+https://crates", ".io").to_owned();
        assert_eq!(unwanted(&File { path: "Cargo.lock".into(), text }), []);
    }
}
