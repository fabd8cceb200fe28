//! What happens to nodes, channels and transfers besides what they do themselves.

use super::NodeFault;
use super::world::World;
use crate::scenario::{Fault, Scenario};
use crate::trace::Event;
use crate::urgency::Urgency;
use crate::violation::Violation;
use engine::{Engine, EngineConfig, PeerConfig};
use model::{NodeId, Time};

impl World<'_> {
    /// A node begins a life.
    pub(super) fn start(&mut self, node: NodeId) {
        let (at, now) = (node.0 as usize, self.agenda.now());
        self.sites[at].life += 1;
        self.sites[at].awake_at = now;
        self.sites[at].urgency = Urgency::new(&self.scenario.base);
        self.trouble.returned(now, node);
        let is_here = |id: &model::ChannelId| id.node == node;
        let base = &self.scenario.base;
        let part = Scenario {
            channels: base.channels.iter().filter(|c| is_here(&c.id)).cloned().collect(),
            pools: base.pools.iter().filter(|p| p.memory.node == node).cloned().collect(),
            transfers: Vec::new(),
            ..base.clone()
        };
        let config = crate::stage::config(&part, &mut self.memories);
        let wire = &self.scenario.wire;
        let peers =
            PeerConfig { node, life: self.sites[at].life, lease: wire.lease, resend: wire.resend };
        let (peers, max_transfers) = (Some(peers), self.scenario.max_transfers);
        self.sites[at].engine = Some(Engine::new(EngineConfig { peers, max_transfers, ..config }));
        for spec in &part.channels {
            let rng = self.rng.fork();
            self.plant.add(spec, rng);
        }
    }

    fn die(&mut self, node: NodeId) -> Result<(), Violation> {
        let (at, now) = (node.0 as usize, self.agenda.now());
        self.sites[at].engine = None;
        self.sites[at].awake_at = now;
        self.trouble.died(now, node);
        self.plant.kill(node);
        self.memories.bury(node);
        self.staged.retain(|&(site, _)| site != at);
        // Its connections break at once; what it was writing may be on its way.
        let floor = u64::from(self.sites[at].life + 1) << 32;
        for writer in (0..self.scenario.nodes).map(NodeId).filter(|w| *w != node) {
            self.plant.cut((node, writer), floor, &mut self.memories)?;
        }
        Ok(())
    }

    pub(super) fn strike(&mut self, fault: usize) -> Option<usize> {
        self.note(Event::Struck { fault });
        let now = self.agenda.now();
        match self.scenario.base.faults[fault].1.clone() {
            Fault::Cancel(transfer) => {
                let node = self.scenario.askers[transfer].0 as usize;
                let watch = &mut self.watches[transfer];
                let id = watch.id.filter(|_| watch.life == self.sites[node].life)?;
                watch.cancelled = true;
                self.sites[node].engine.as_mut()?.cancel(now, id);
                return Some(node);
            }
            Fault::Break { channel, kind } => self.plant.channel(channel)?.break_next(kind),
            Fault::Lose(channel) => self.plant.channel(channel)?.lose(),
            Fault::Stall { channel, for_ns } => {
                self.plant.channel(channel)?.stall(Time(now.0 + for_ns));
            }
        }
        None
    }

    pub(super) fn strike_node(&mut self, fault: usize) -> Result<(), Violation> {
        let now = self.agenda.now();
        match self.scenario.faults[fault].1 {
            NodeFault::Die(node) if self.sites[node.0 as usize].engine.is_some() => {
                self.die(node)?;
            }
            NodeFault::Return(node) if self.sites[node.0 as usize].engine.is_none() => {
                self.start(node);
            }
            NodeFault::Part { one, other, for_ns, is_one_way } => {
                let until = Time(now.0 + for_ns);
                self.trouble.cut(one, other, until);
                if !is_one_way {
                    self.trouble.cut(other, one, until);
                }
            }
            NodeFault::Stall { node, for_ns } => {
                let site = &mut self.sites[node.0 as usize];
                site.awake_at = site.awake_at.max(Time(now.0 + for_ns));
                self.trouble.stalled(node, now, site.awake_at);
            }
            NodeFault::Die(_) | NodeFault::Return(_) => {}
        }
        Ok(())
    }
}
