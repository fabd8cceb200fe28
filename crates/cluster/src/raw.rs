//! The file as it is written: CONTRACTS' keys, and nothing checked but types.

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cluster {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default = "default_th")]
    pub(crate) th_bytes: u64,
    pub(crate) node: Vec<Node>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) link: Vec<Link>,
    /// For readers only, as `channels`.
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "read past")]
    pub(crate) memories: de::IgnoredAny,
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "read past")]
    pub(crate) channels: de::IgnoredAny,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) first: u32,
    #[serde(default = "one")]
    pub(crate) count: u32,
    pub(crate) memory: Vec<Memory>,
    #[serde(default)]
    pub(crate) channel: Vec<Channel>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) wire: Vec<Wire>,
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "a mark for the people who read the file")]
    pub(crate) assumed: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    pub(crate) name: String,
    pub(crate) kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capacity_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) th_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<String>,
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "a mark for the people who read the file")]
    pub(crate) assumed: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Channel {
    pub(crate) kind: String,
    pub(crate) from: Vec<String>,
    pub(crate) to: Vec<String>,
    pub(crate) throughput: Curve,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) throughput_interleave: Option<Curve>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) throughput_transpose: Option<Curve>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) throughput_gather: Option<Curve>,
    #[serde(default)]
    pub(crate) latency_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wire: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) in_flight: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream_from_bytes: Option<StreamFrom>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) assumed: bool,
}

/// From how many bytes on results go past the caches.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`stream_from_bytes` as { in_order, turned }")]
pub(crate) struct StreamFrom {
    pub(crate) in_order: u64,
    pub(crate) turned: u64,
}

/// A link has a channel's keys; `wire` is refused there.
pub(crate) type Link = Channel;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wire {
    pub(crate) name: String,
    pub(crate) throughput: f64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) half_duplex: bool,
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "a mark for the people who read the file")]
    pub(crate) assumed: bool,
}

/// A rate in bytes per second, or points `[request bytes, bytes per second]`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Curve {
    Constant(f64),
    Points(Vec<(u64, f64)>),
}

impl<'de> Deserialize<'de> for Curve {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CurveVisitor)
    }
}

struct CurveVisitor;

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
impl<'de> Visitor<'de> for CurveVisitor {
    type Value = Curve;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate in bytes per second, or points [request bytes, bytes per second]")
    }

    fn visit_f64<E: de::Error>(self, rate: f64) -> Result<Curve, E> {
        Ok(Curve::Constant(rate))
    }

    fn visit_i64<E: de::Error>(self, rate: i64) -> Result<Curve, E> {
        Ok(Curve::Constant(rate as f64))
    }

    fn visit_u64<E: de::Error>(self, rate: u64) -> Result<Curve, E> {
        Ok(Curve::Constant(rate as f64))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Curve, A::Error> {
        let mut points = Vec::new();
        while let Some(point) = seq.next_element()? {
            points.push(point);
        }
        Ok(Curve::Points(points))
    }
}

fn default_th() -> u64 {
    32 << 20
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
