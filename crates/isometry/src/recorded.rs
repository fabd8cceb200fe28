//! Copies as they were asked for, in the form in which `iso sim run` replays them.

use crate::Error;
use crate::view::View;
use model::{Priority, Span, Time, Topology};
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::Arc;

/// A copy that was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) src: Arc<View>,
    pub(crate) dst: Arc<View>,
    pub(crate) priority: Priority,
    pub(crate) at: Time,
}

impl Recorded {
    /// The keys of a copy in a workload file. Both ends have the order of the destination's dimensions
    /// and fields, and its indices; what a list picks is a range of as many, and strides are the
    /// nearest layout.
    ///
    /// # Errors
    /// As for the copy itself, where it was none.
    pub(crate) fn to_json(&self, topology: &Topology) -> Result<Value, Error> {
        let (src, dst) = (self.src.in_order_of(self.dst.space.dims())?, &*self.dst);
        let fields = dst.fields.fields().iter().map(|field| field.bytes);
        Ok(json!({
            "from": topology.short_name(src.memory),
            "to": topology.short_name(dst.memory),
            "dims": {
                "box": dims(dst, |at| picked(dst, at)),
                "from": dims(dst, |at| instance(&src, dst, at)),
                "to": dims(dst, |at| instance(dst, dst, at)),
            },
            "fields": fields.collect::<Vec<_>>(),
            "from_layout": layout(&src)?,
            "to_layout": layout(dst)?,
            "priority": self.priority.0,
            "at_ns": self.at.0,
        }))
    }
}

/// The bounds of each dimension, as a workload file has them.
fn dims(view: &View, bounds: impl Fn(usize) -> Range<i64>) -> String {
    let names = view.space.dims().iter().enumerate();
    let all = names.map(|(at, dim)| {
        let Range { start, end } = bounds(at);
        format!("{}={start}..{end}", dim.name)
    });
    all.collect::<Vec<_>>().join(",")
}

/// What is copied of a dimension.
fn picked(view: &View, dim: usize) -> Range<i64> {
    let span = &view.selection.spans()[dim];
    let lo = span.hull().start;
    lo..lo.saturating_add_unsigned(span.extent())
}

/// The bounds of `view`, moved to where the box of `dst` lies.
fn instance(view: &View, dst: &View, dim: usize) -> Range<i64> {
    let (bounds, to) = (&view.space.dims()[dim], picked(dst, dim));
    match view.selection.spans()[dim] {
        Span::List(_) => to,
        Span::Range { lo, .. } => {
            let by = to.start.saturating_sub(lo);
            bounds.lo.saturating_add(by)..bounds.hi.saturating_add(by)
        }
    }
}

fn layout(view: &View) -> Result<String, Error> {
    Ok(view.placement()?.layout().display(&view.space).to_string())
}
