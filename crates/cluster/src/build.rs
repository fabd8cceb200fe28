//! From the file's tables to a topology, checked.

use crate::error::ClusterError;
use crate::raw::{self, Curve};
use model::{
    Channel, ChannelId, ChannelKind, Crossover, Curves, Link, LinkEnd, Memory, MemoryKind,
    NodeClass, Throughput, Topology, Wire,
};

type Checked<T> = Result<T, ClusterError>;

const MEMORY_KINDS: [MemoryKind; 5] =
    [MemoryKind::Sys, MemoryKind::Zcm, MemoryKind::Reg, MemoryKind::Fbm, MemoryKind::Dsk];

const CHANNEL_KINDS: [ChannelKind; 8] = [
    ChannelKind::Memcpy,
    ChannelKind::GpuRead,
    ChannelKind::GpuWrite,
    ChannelKind::GpuCopy,
    ChannelKind::GpuConvert,
    ChannelKind::DiskRead,
    ChannelKind::DiskWrite,
    ChannelKind::RemoteMemcpy,
];

pub(crate) fn topology(raw: &raw::Cluster) -> Checked<Topology> {
    let nodes = raw.node.iter().enumerate();
    let classes = nodes.map(|(i, n)| class(n, &format!("node[{i}]"))).collect::<Checked<_>>()?;
    let mut topology = Topology {
        name: raw.name.clone(),
        generation: 0,
        th_bytes: raw.th_bytes,
        classes,
        links: Vec::new(),
    };
    check_classes(&topology.classes)?;
    let links = raw.link.iter().enumerate();
    let links = links.map(|(i, l)| link(l, &format!("link[{i}]"), &topology.classes));
    topology.links = links.collect::<Checked<_>>()?;
    check_sizes(&topology)?;
    Ok(topology)
}

fn class(raw: &raw::Node, key: &str) -> Checked<NodeClass> {
    check_name(&raw.name, &format!("{key}.name"))?;
    if raw.count == 0 {
        return Err(ClusterError::value(format!("{key}.count"), "a class has at least one node"));
    }
    let wires = raw.wire.iter().enumerate();
    let wires = wires.map(|(i, w)| wire(w, &format!("{key}.wire[{i}]")));
    let wires: Vec<Wire> = wires.collect::<Checked<_>>()?;
    let memories = raw.memory.iter().enumerate();
    let memories = memories.map(|(i, m)| memory(m, &format!("{key}.memory[{i}]"), &wires));
    let memories: Vec<Memory> = memories.collect::<Checked<_>>()?;
    let mut class = NodeClass {
        name: raw.name.clone(),
        first: raw.first,
        count: raw.count,
        memories,
        channels: Vec::new(),
        wires,
    };
    unique(class.memories.iter().map(|m| &*m.name), &format!("{key}.memory"))?;
    unique(class.wires.iter().map(|w| &*w.name), &format!("{key}.wire"))?;
    let channels = raw.channel.iter().enumerate();
    let channels = channels.map(|(i, c)| channel(c, &format!("{key}.channel[{i}]"), &class));
    class.channels = channels.collect::<Checked<_>>()?;
    Ok(class)
}

fn memory(raw: &raw::Memory, key: &str, wires: &[Wire]) -> Checked<Memory> {
    check_name(&raw.name, &format!("{key}.name"))?;
    let kind = MEMORY_KINDS.into_iter().find(|k| k.name() == raw.kind);
    let kind = kind.ok_or_else(|| unknown(format!("{key}.kind"), "kind of memory", &raw.kind))?;
    Ok(Memory {
        name: raw.name.clone(),
        kind,
        capacity_bytes: raw.capacity_bytes,
        th_bytes: raw.th_bytes,
        port: raw
            .port
            .as_ref()
            .map(|name| wire_named(name, &format!("{key}.port"), wires))
            .transpose()?,
    })
}

fn wire_named(name: &str, key: &str, wires: &[Wire]) -> Checked<u16> {
    position(wires.iter().map(|w| &*w.name), name).ok_or_else(|| unknown(key, "wire", name))
}

fn wire(raw: &raw::Wire, key: &str) -> Checked<Wire> {
    check_name(&raw.name, &format!("{key}.name"))?;
    curve(&Curve::Constant(raw.throughput), &format!("{key}.throughput"))?;
    Ok(Wire { name: raw.name.clone(), rate: raw.throughput, half_duplex: raw.half_duplex })
}

fn channel(raw: &raw::Channel, key: &str, class: &NodeClass) -> Checked<Channel> {
    let is_closed = raw.from.is_empty() && raw.to.is_empty();
    let memories = |names: &[String], key: &str| {
        let place = |name: &String| position(class.memories.iter().map(|m| &*m.name), name);
        let found = names.iter().map(|n| place(n).ok_or_else(|| unknown(key, "memory", n)));
        let found = found.collect::<Checked<Vec<_>>>()?;
        if is_closed { Ok(found) } else { distinct(found, key) }
    };
    let wire = raw.wire.as_ref();
    let wire = wire.map(|name| wire_named(name, &format!("{key}.wire"), &class.wires));
    Ok(Channel {
        kind: channel_kind(raw, key)?,
        from: memories(&raw.from, &format!("{key}.from"))?,
        to: memories(&raw.to, &format!("{key}.to"))?,
        curves: curves(raw, key)?,
        latency_ns: raw.latency_ns,
        wire: wire.transpose()?,
        in_flight: in_flight(raw, key)?,
        stream_from_bytes: stream_from(raw, key)?,
        assumed: raw.assumed,
    })
}

fn link(raw: &raw::Link, key: &str, classes: &[NodeClass]) -> Checked<Link> {
    if raw.wire.is_some() {
        return Err(ClusterError::name(
            format!("{key}.wire"),
            "a link crosses the wires that its memories have as `port`",
        ));
    }
    stream_from(raw, key)?;
    let ends = |names: &[String], key: &str| {
        let found = names.iter().map(|n| {
            let ends = link_ends(n, classes);
            if ends.is_empty() { Err(unknown(key, "memory (`class.memory`)", n)) } else { Ok(ends) }
        });
        distinct(found.collect::<Checked<Vec<_>>>()?.concat(), key)
    };
    Ok(Link {
        kind: channel_kind(raw, key)?,
        from: ends(&raw.from, &format!("{key}.from"))?,
        to: ends(&raw.to, &format!("{key}.to"))?,
        groups: Vec::new(),
        except: Vec::new(),
        curves: curves(raw, key)?,
        latency_ns: raw.latency_ns,
        in_flight: in_flight(raw, key)?,
        assumed: raw.assumed,
    })
}

/// The memory of that name of all classes of that name.
fn link_ends(name: &str, classes: &[NodeClass]) -> Vec<LinkEnd> {
    let Some((class, memory)) = name.split_once('.') else { return Vec::new() };
    let named = (0..).zip(classes).filter(|(_, c)| c.name == class);
    let end = |(class, c): (u16, &NodeClass)| {
        Some(LinkEnd { class, memory: position(c.memories.iter().map(|m| &*m.name), memory)? })
    };
    named.filter_map(end).collect()
}

fn channel_kind(raw: &raw::Channel, key: &str) -> Checked<ChannelKind> {
    let kind = CHANNEL_KINDS.into_iter().find(|k| k.name() == raw.kind);
    kind.ok_or_else(|| unknown(format!("{key}.kind"), "kind of channel", &raw.kind))
}

fn in_flight(raw: &raw::Channel, key: &str) -> Checked<Option<u32>> {
    if raw.in_flight == Some(0) {
        return Err(ClusterError::value(format!("{key}.in_flight"), "at least one request"));
    }
    Ok(raw.in_flight)
}

fn stream_from(raw: &raw::Channel, key: &str) -> Checked<Option<Crossover>> {
    if raw.stream_from_bytes.is_some() && raw.kind != ChannelKind::Memcpy.name() {
        let key = format!("{key}.stream_from_bytes");
        return Err(ClusterError::name(key, "only Memcpy writes past the caches"));
    }
    let crossover =
        |from: &raw::StreamFrom| Crossover { in_order: from.in_order, turned: from.turned };
    Ok(raw.stream_from_bytes.as_ref().map(crossover))
}

fn curves(raw: &raw::Channel, key: &str) -> Checked<Curves> {
    let class = |c: &Option<Curve>, name: &str| {
        c.as_ref().map(|c| curve(c, &format!("{key}.throughput_{name}"))).transpose()
    };
    Ok(Curves {
        run: curve(&raw.throughput, &format!("{key}.throughput"))?,
        interleave: class(&raw.throughput_interleave, "interleave")?,
        transpose: class(&raw.throughput_transpose, "transpose")?,
        gather: class(&raw.throughput_gather, "gather")?,
    })
}

fn curve(raw: &Curve, key: &str) -> Checked<Throughput> {
    let made = match raw {
        Curve::Constant(rate) => Throughput::constant(*rate),
        Curve::Points(points) => Throughput::through(points.clone()),
    };
    made.map_err(|e| ClusterError::value(key, e.to_string()))
}

fn check_name(name: &str, key: &str) -> Checked<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(good) {
        return Ok(());
    }
    Err(ClusterError::name(key, format!("`{name}` is not a name: letters, digits, `_` and `-`")))
}

/// Class names must tell nodes apart: `n` and `n1` would both have an `n10`. Two classes of one name
/// have other numbers.
fn check_classes(classes: &[NodeClass]) -> Checked<()> {
    for (i, class) in classes.iter().enumerate() {
        let numbers = |c: &NodeClass| {
            let first = u64::from(c.first);
            first..first + u64::from(c.count)
        };
        let (mine, name) = (numbers(class), &class.name);
        let meets = |c: &NodeClass| {
            let theirs = numbers(c);
            c.name == *name && theirs.start < mine.end && mine.start < theirs.end
        };
        if classes[..i].iter().any(meets) {
            let why = format!("`{name}` is there twice");
            return Err(ClusterError::name(format!("node[{i}].name"), why));
        }
        let is_number = |rest: &str| rest.bytes().all(|b| b.is_ascii_digit());
        let extends = |c: &NodeClass| {
            c.name != *name && class.name.strip_prefix(&*c.name).is_some_and(is_number)
        };
        if classes.iter().enumerate().any(|(k, c)| k != i && extends(c)) {
            let why = format!("`{}` is another class's name and a number", class.name);
            return Err(ClusterError::name(format!("node[{i}].name"), why));
        }
    }
    Ok(())
}

/// Positions are 16 bits wide, nodes 32.
fn check_sizes(topology: &Topology) -> Checked<()> {
    let nodes: u64 = topology.classes.iter().map(|c| u64::from(c.count)).sum();
    let most = usize::from(u16::MAX);
    let most_channels = usize::from(ChannelId::FIRST_LINK);
    let fits = |c: &NodeClass| c.memories.len() <= most && c.channels.len() <= most_channels;
    if topology.classes.is_empty() {
        return Err(ClusterError::value("node", "a cluster has at least one node"));
    }
    if u32::try_from(nodes).is_err() || topology.classes.len() > most {
        return Err(ClusterError::value("node", "more nodes than 32 bits can number"));
    }
    if !topology.classes.iter().all(fits) {
        return Err(ClusterError::value("node", "more than 65535 memories or 32768 channels"));
    }
    if topology.links.len() > most_channels {
        return Err(ClusterError::value("link", "more than 32768 links"));
    }
    Ok(())
}

fn unique<'a>(names: impl Iterator<Item = &'a str>, key: &str) -> Checked<()> {
    let mut seen = std::collections::HashSet::new();
    for (i, name) in names.enumerate() {
        if !seen.insert(name) {
            let why = format!("`{name}` is there twice");
            return Err(ClusterError::name(format!("{key}[{i}].name"), why));
        }
    }
    Ok(())
}

fn distinct<T: PartialEq>(items: Vec<T>, key: &str) -> Checked<Vec<T>> {
    if items.is_empty() {
        return Err(ClusterError::value(key, "names at least one memory"));
    }
    if items.iter().enumerate().any(|(i, item)| items[..i].contains(item)) {
        return Err(ClusterError::name(key, "names a memory twice"));
    }
    Ok(items)
}

fn position<'a>(mut names: impl Iterator<Item = &'a str>, name: &str) -> Option<u16> {
    u16::try_from(names.position(|n| n == name)?).ok()
}

fn unknown(key: impl Into<String>, what: &str, name: &str) -> ClusterError {
    ClusterError::name(key, format!("there is no {what} `{name}`"))
}
