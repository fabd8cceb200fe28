//! Nodes that need more than their share ask others, in turn, for what these don't use.
//!
//! Who has to move a firehose asks others for more. Whoever has not moved any for a while gives half of
//! what it does not use, but for the last part of its share; others give what they have beyond theirs. So
//! two that need all they have leave each other alone, and who gave too much gets it back. What is given
//! is counted by the owner, which the new holder tells of it; until it has answered, neither counts on it.

use super::{Hoses, Request, Run};
use model::NodeId;

impl Hoses {
    /// Another node asks for up to so many buckets of `owner`; returns how many it gets, and those of
    /// them that the owner still thinks are this node's.
    pub(crate) fn handle_give(
        &mut self,
        (thief, owner): (NodeId, NodeId),
        buckets: u64,
    ) -> (u64, Vec<Run>) {
        let is_node = |node: NodeId| (node.0 as usize) < self.peers.len();
        if !is_node(owner) || owner == self.me || thief == owner || self.peer(owner).is_lost {
            return (0, Vec::new());
        }
        let rules = self.rules;
        let peer = &mut self.peers[owner.0 as usize];
        // Who needs all that it has gives only what it had from others.
        let is_pressed = peer.pressure > 0 || !peer.waiting.is_empty();
        peer.pressure /= 2;
        let least = if is_pressed { rules.share } else { rules.floor };
        let spare = peer.limit - peer.used + peer.idle_buckets;
        let spare = if is_pressed { spare } else { spare.div_ceil(2) };
        let most = buckets.min(peer.limit.saturating_sub(least)).min(spare);
        let mut given = most.min(peer.limit - peer.used);
        let mut runs = Vec::new();
        while runs.len() < rules.runs
            && let Some(first) = self.peers[owner.0 as usize].idle.first()
            && given + self.arena.get(first).run.count <= most
        {
            let run = self.unplug(owner, first);
            self.peer(owner).used -= run.count;
            given += run.count;
            runs.push(run);
        }
        self.peer(owner).limit -= given;
        (given, runs)
    }

    /// `from` gives so many buckets of `owner`.
    pub(crate) fn handle_given(
        &mut self,
        from: NodeId,
        owner: NodeId,
        (buckets, unpin): (u64, Vec<Run>),
    ) {
        let Some(peer) = self.peers.get_mut(owner.0 as usize) else { return };
        if buckets == 0 {
            self.end_ask(owner, from, 0);
        } else if !peer.is_lost {
            self.requests
                .push_back((owner, Request::Move { from, buckets, unpin, is_given: true }));
        }
    }

    /// An owner says that this node got so many of its buckets from `from`.
    pub(crate) fn handle_moved(&mut self, owner: NodeId, from: NodeId, buckets: u64) {
        let peer = self.peer(owner);
        if peer.is_lost {
            return;
        }
        peer.limit += buckets;
        self.end_ask(owner, from, buckets);
        self.counts.stolen += buckets;
        self.serve(owner);
    }

    /// Whoever was asked for buckets of `owner` gave so many. Once all others gave none, they are left
    /// alone for a while.
    fn end_ask(&mut self, owner: NodeId, from: NodeId, buckets: u64) {
        let others = self.peers.len() as u32 - 2;
        let peer = &mut self.peers[owner.0 as usize];
        peer.giver = peer.giver.filter(|&giver| giver != from);
        peer.refused = if buckets > 0 { 0 } else { peer.refused + 1 };
        if peer.refused >= others {
            (peer.refused, peer.calm) = (0, peer.limit / 4);
        }
    }

    /// Asks another for buckets of `owner`, unless one is asked; whoever is next in turn.
    pub(super) fn ask_others(&mut self, owner: NodeId) {
        let (me, nodes) = (self.me.0, self.peers.len() as u32);
        let peer = &self.peers[owner.0 as usize];
        let next = (1..=nodes).map(|i| (peer.last_giver + i) % nodes);
        let Some(giver) = next.take(3).find(|&node| node != me && node != owner.0) else { return };
        if peer.giver.is_some() || !self.rules.stays {
            return;
        }
        let peer = self.peer(owner);
        peer.giver = Some(NodeId(giver));
        peer.last_giver = giver;
        let buckets = peer.limit;
        let request = if self.peers[giver as usize].is_lost {
            let from = NodeId(giver);
            (owner, Request::Move { from, buckets, unpin: Vec::new(), is_given: false })
        } else {
            (NodeId(giver), Request::Give { owner, buckets })
        };
        self.requests.push_back(request);
    }
}
