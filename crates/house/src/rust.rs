//! What a Rust file holds, as plain values: functions, structures, unsafe code, names used.

use proc_macro2::Span;
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Fields, Item, Signature, UseTree};

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its signature.
    pub line: usize,
    /// Lines of its body that hold code: no comments, no blanks, not the braces around it.
    pub code_lines: usize,
    /// Parameters, a receiver among them.
    pub parameters: usize,
    /// Whether it says beside itself why it has more parameters than the rule allows, or is C's.
    pub excused: bool,
    /// Whether it is test code.
    pub is_test: bool,
}

/// A struct, or a variant of an enum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// Its name.
    pub name: String,
    /// The line of its name.
    pub line: usize,
    /// The number of fields.
    pub fields: usize,
}

/// Something used by name: a path, a method or a macro.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The path with `::`, or the lone name.
    pub name: String,
    /// Where it is used.
    pub line: usize,
    /// Whether that is test code.
    pub is_test: bool,
}

/// One Rust file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Source {
    /// Relative to the workspace's root.
    pub path: String,
    /// Its lines.
    pub lines: Vec<String>,
    /// Whether the whole file is test code.
    pub is_test: bool,
    /// Whether it opens with `#![forbid(unsafe_code)]`.
    pub forbids_unsafe: bool,
    /// Lines of items under `#[cfg(test)]`.
    pub test_lines: Vec<RangeInclusive<usize>>,
    /// Files that are its `#[cfg(test)]` modules.
    pub test_files: Vec<String>,
    /// Functions that have a body.
    pub functions: Vec<Function>,
    /// Structs and variants.
    pub structures: Vec<Structure>,
    /// Lines of unsafe blocks and unsafe implementations.
    pub unsafe_lines: Vec<usize>,
    /// Paths, imported ones among them.
    pub paths: Vec<Named>,
    /// Methods called.
    pub methods: Vec<Named>,
    /// Macros called.
    pub macros: Vec<Named>,
}

impl Source {
    /// Reads `text`.
    ///
    /// # Panics
    /// Where it is not Rust.
    #[must_use]
    pub fn parse(path: &str, text: &str) -> Self {
        let file = syn::parse_file(text).unwrap_or_else(|e| panic!("{path}: {e}"));
        let mut source = Source {
            path: path.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
            is_test: is_test_path(path),
            forbids_unsafe: file.attrs.iter().any(forbids_unsafe),
            ..Source::default()
        };
        let mut reader = Reader { source: &mut source, in_test: false };
        reader.visit_file(&file);
        source
    }

    /// The crate's directory: `crates/channels/host` for a file below it.
    #[must_use]
    pub fn crate_dir(&self) -> &str {
        let end = ["/src/", "/tests/", "/benches/", "/examples/", "/build.rs"];
        let cut = end.iter().filter_map(|end| self.path.find(end)).min();
        &self.path[..cut.unwrap_or(self.path.len())]
    }

    fn code_lines(&self, lines: RangeInclusive<usize>) -> usize {
        let text = self.lines.get(lines.start() - 1..*lines.end()).unwrap_or_default();
        text.iter().map(|l| l.trim()).filter(|l| !l.is_empty() && !l.starts_with("//")).count()
    }
}

fn is_test_path(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/benches/")
}

fn forbids_unsafe(attribute: &Attribute) -> bool {
    let idents = attribute.meta.require_list().map(|list| list.tokens.to_string());
    attribute.path().is_ident("forbid") && idents.is_ok_and(|i| i.contains("unsafe_code"))
}

fn is_test_item(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        let condition = a.meta.require_list().map(|list| list.tokens.to_string());
        let cfg = a.path().is_ident("cfg") && condition.is_ok_and(|c| c == "test");
        cfg || a.path().is_ident("test")
    })
}

fn is_excused(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        let lints = a.meta.require_list().map(|list| list.tokens.to_string());
        let named = lints.is_ok_and(|l| l.contains("too_many_arguments") && l.contains("reason"));
        a.path().is_ident("expect") && named
    })
}

fn line_of(span: Span) -> usize {
    span.start().line
}

struct Reader<'a> {
    source: &'a mut Source,
    in_test: bool,
}

impl Reader<'_> {
    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: &Block) {
        let braces = block.brace_token.span;
        let (open, close) = (line_of(braces.open()), line_of(braces.close()));
        let inside = if open + 1 < close { open + 1..=close - 1 } else { open..=open };
        self.source.functions.push(Function {
            name: signature.ident.to_string(),
            line: line_of(signature.ident.span()),
            code_lines: self.source.code_lines(inside),
            parameters: signature.inputs.len(),
            // C says what it calls its functions with.
            excused: is_excused(attributes) || signature.abi.is_some(),
            is_test: self.in_test || is_test_item(attributes),
        });
    }

    fn structure(&mut self, name: &syn::Ident, fields: &Fields) {
        let line = line_of(name.span());
        let structure = Structure { name: name.to_string(), line, fields: fields.len() };
        self.source.structures.push(structure);
    }

    fn named(&self, name: String, span: Span) -> Named {
        Named { name, line: line_of(span), is_test: self.in_test }
    }

    fn import(&mut self, prefix: &str, tree: &UseTree) {
        let joined = |name: &syn::Ident| format!("{prefix}{name}");
        match tree {
            UseTree::Path(path) => self.import(&format!("{}::", joined(&path.ident)), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|t| self.import(prefix, t)),
            UseTree::Name(name) => self.imported(joined(&name.ident), tree.span()),
            UseTree::Rename(name) => self.imported(joined(&name.ident), tree.span()),
            UseTree::Glob(_) => self.imported(format!("{prefix}*"), tree.span()),
        }
    }

    fn imported(&mut self, name: String, span: Span) {
        let named = self.named(name.trim_end_matches("::self").to_owned(), span);
        self.source.paths.push(named);
    }

    fn test_module(&mut self, item: &Item) {
        let Item::Mod(module) = item else { return };
        if module.content.is_some() {
            return;
        }
        let (dir, file) = self.source.path.rsplit_once('/').unwrap_or_default();
        let stem = file.trim_end_matches(".rs");
        let below = match stem {
            "lib" | "main" | "mod" => dir.to_owned(),
            _ => format!("{dir}/{stem}"),
        };
        let name = &module.ident;
        self.source.test_files.push(format!("{below}/{name}.rs"));
        self.source.test_files.push(format!("{below}/{name}/mod.rs"));
    }
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let before = self.in_test;
        if is_test_item(attributes_of(item)) && !before {
            self.in_test = true;
            self.test_module(item);
            self.source.test_lines.push(line_of(item.span())..=item.span().end().line);
        }
        visit::visit_item(self, item);
        self.in_test = before;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.attrs, &item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.structure(&item.ident, &item.fields);
        visit::visit_item_struct(self, item);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.structure(&variant.ident, &variant.fields);
        visit::visit_variant(self, variant);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.source.unsafe_lines.push(line_of(token.span));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.source.unsafe_lines.push(line_of(block.unsafe_token.span));
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import("", &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        let named = self.named(segments.join("::"), path.span());
        self.source.paths.push(named);
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let named = self.named(call.method.to_string(), call.method.span());
        self.source.methods.push(named);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        let named = self.named(name, call.path.span());
        self.source.macros.push(named);
        visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#![forbid(unsafe_code)]
use std::{fs, time::{self, Duration}};
struct S { a: u8, b: u8 }
enum E { V(u8), W }
fn short(a: u8) -> u8 { a }
fn long() {
    // why
    let x = y.ln();

    std::thread::sleep(x);
    println!();
}
#[cfg(test)]
mod tests;
#[cfg(test)]
mod more {
    fn test() {}
}
";

    #[test]
    fn a_file_is_read_as_values() {
        let source = Source::parse("crates/a/src/lib.rs", TEXT);
        assert!(source.forbids_unsafe && !source.is_test);
        assert_eq!(source.crate_dir(), "crates/a");
        let lines: Vec<_> = source.functions.iter().map(|f| (f.line, f.code_lines)).collect();
        assert_eq!(lines, [(5, 1), (6, 3), (17, 1)]);
        let fields: Vec<_> = source.structures.iter().map(|s| s.fields).collect();
        assert_eq!(fields, [2, 1, 0]);
        assert_eq!(source.test_lines, [13..=14, 15..=18]);
        assert_eq!(source.test_files[0], "crates/a/src/tests.rs");
        let paths: Vec<_> = source.paths.iter().map(|p| p.name.as_str()).collect();
        for used in ["std::fs", "std::time", "std::time::Duration", "std::thread::sleep"] {
            assert!(paths.contains(&used), "{used}");
        }
        assert_eq!((source.methods[0].name.as_str(), source.methods[0].line), ("ln", 8));
        assert_eq!(source.macros[0].name, "println");
        assert!(source.functions[2].is_test);
    }
}
