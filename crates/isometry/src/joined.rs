//! What a machine says as a node among others.

use crate::instance::Instance;
use crate::machine::Machine;
use crate::nodes::Nodes;
use crate::{ArgumentError, Array, Error, FileOptions};
use model::NodeId;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Machine {
    /// Which node this machine is; 0 where it has joined no others.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.shared.here().0
    }

    /// How many nodes there are, this one among them: one more than the highest rank of any that has
    /// joined.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.shared.nodes.as_ref().map_or(1, |nodes| nodes.fabric.size())
    }

    /// Waits until all nodes that joined at the start have called this, as often as this one has; what any
    /// of them published before is there then.
    ///
    /// # Errors
    /// [`Error::Nodes`] where a node is lost, or where that takes longer than `timeout`: this node
    /// has come to the barrier all the same; where this node came later. [`Error::Closed`],
    /// [`Error::Forked`].
    pub fn barrier(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.shared.check_open()?;
        self.shared.nodes.as_ref().map_or(Ok(()), |nodes| nodes.barrier(timeout))
    }

    /// Lets other nodes find `instance` under `name`, and copy from and to it, for as long as this
    /// machine lives. It may be a box. Blocks until what it was wrapped behind is over.
    ///
    /// # Errors
    /// [`ArgumentError::NotJoined`], [`ArgumentError::Name`], [`ArgumentError::Published`],
    /// [`ArgumentError::NotHere`], [`ArgumentError::OtherMachine`]; [`Error::Closed`],
    /// [`Error::Forked`].
    pub fn publish(&self, name: &str, instance: &Instance) -> Result<(), Error> {
        let nodes = self.joined()?;
        if !Arc::ptr_eq(&instance.holding.shared, &self.shared) {
            return Err(ArgumentError::OtherMachine.into());
        }
        if instance.memory().node != self.shared.here() {
            return Err(ArgumentError::NotHere.into());
        }
        instance.settle()?;
        nodes.publish(name, instance)
    }

    /// What another node, or this one, publishes under a name: `node0/weights`. Waits until it does, and
    /// where nodes may come later, also until one of that name is there.
    ///
    /// # Errors
    /// [`ArgumentError::NotJoined`], [`ArgumentError::NoNode`], [`ArgumentError::Name`];
    /// [`Error::Nodes`] where that node is lost; [`Error::TimedOut`] after `timeout`;
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn lookup(&self, name: &str, timeout: Option<Duration>) -> Result<Instance, Error> {
        self.lookup_unless(name, timeout, &|| false)
    }

    /// As [`Machine::lookup`], but ends with [`Error::TimedOut`] too once `is_interrupted`, which is
    /// asked ten times a second.
    ///
    /// # Errors
    /// As [`Machine::lookup`].
    pub fn lookup_unless(
        &self,
        name: &str,
        timeout: Option<Duration>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Instance, Error> {
        let nodes = self.joined()?;
        let (node, name) = name.split_once('/').unwrap_or(("", name));
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let node = nodes.find(node, (end, is_interrupted))?;
        nodes.lookup(&self.shared, (node, name), (end, is_interrupted))
    }

    /// The array in the file at `path` of `node`, as [`Machine::open_file`] there: see
    /// [`MachineBuilder::serve_files`]. That node keeps the file open until the instance, its clones and
    /// the copies of it are gone, or this node is.
    ///
    /// # Errors
    /// [`ArgumentError::NotJoined`], [`ArgumentError::NoNode`]; [`Error::FarFile`] where that node
    /// can't open it or serves no such file, with the kind of error that it met; [`Error::Nodes`] where
    /// it is lost; [`Error::TimedOut`] where it does not answer in a minute; [`Error::Closed`],
    /// [`Error::Forked`]. Where `node` is this one, as [`Machine::open_file`].
    ///
    /// [`MachineBuilder::serve_files`]: crate::MachineBuilder::serve_files
    pub fn open_file_at(
        &self,
        node: &str,
        path: impl AsRef<Path>,
        options: &FileOptions,
    ) -> Result<Instance, Error> {
        let (nodes, there) = self.node_at(node)?;
        if there == nodes.here() {
            return self.open_file(path, options);
        }
        nodes.file_at(&self.shared, (there, node), path.as_ref(), (None, options))
    }

    /// A file to be at `path` of `node`, as [`Machine::create_file`] there. A copy that covers all of
    /// it commits it; else it is deleted when the instance, its clones and the copies to it are gone,
    /// or this node is.
    ///
    /// # Errors
    /// As [`Machine::open_file_at`].
    pub fn create_file_at(
        &self,
        node: &str,
        path: impl AsRef<Path>,
        array: Array,
        options: &FileOptions,
    ) -> Result<Instance, Error> {
        let (nodes, there) = self.node_at(node)?;
        if there == nodes.here() {
            return self.create_file(path, array, options);
        }
        nodes.file_at(&self.shared, (there, node), path.as_ref(), (Some(&array), options))
    }

    /// A node and a path there, where `text` starts with the name of one that this machine has joined,
    /// or with its own, and a colon: `node1:/a.npy`.
    #[must_use]
    pub fn split_node<'a>(&self, text: &'a str) -> Option<(&'a str, &'a str)> {
        let (node, path) = text.split_once(':')?;
        self.shared.nodes.as_ref()?.named(node).is_ok().then_some((node, path))
    }

    fn node_at(&self, name: &str) -> Result<(&Nodes, NodeId), Error> {
        let nodes = self.joined()?;
        Ok((nodes, nodes.named(name)?))
    }

    fn joined(&self) -> Result<&Nodes, Error> {
        self.shared.check_open()?;
        Ok(self.shared.nodes.as_deref().ok_or(ArgumentError::NotJoined)?)
    }
}
