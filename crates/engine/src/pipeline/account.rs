//! What became of a packet and why, for whoever traces single packets.

use super::Pipeline;
use crate::connections::Ends;
use crate::flows::Standing;
use crate::snapshot::Snapshot;
use mmb_conn::Direction;
use mmb_policy::RuleId;

/// The rules that an account names.
const NAMED: usize = 16;

/// Why a packet gets what it gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    rules: [u32; NAMED],
    /// How many rules it gets, of which the first are named.
    pub count: u32,
    /// Its connection.
    pub connection: Option<Membership>,
}

/// How a packet belongs to a connection.
#[derive(Clone, Copy, Debug)]
pub struct Membership {
    /// The connection's number at its worker.
    pub id: u32,
    /// The packet goes towards the initiator.
    pub is_reply: bool,
    /// The IP protocol.
    pub proto: u8,
    /// The initiator's packets as they arrive.
    pub arrived: Ends,
}

impl Account {
    /// The first rules that the packet gets, in order.
    pub fn rules(&self) -> impl Iterator<Item = RuleId> + '_ {
        self.rules.iter().take(self.count as usize).map(|&id| RuleId(id))
    }
}

impl Pipeline {
    /// Tells why a packet of the vector that was decided on last gets what it gets. `concerned`: connections were asked.
    pub(super) fn account(&mut self, snapshot: &Snapshot, at: usize, concerned: bool) -> Account {
        let mut account = Account::default();
        self.due.clear();
        if !concerned {
            self.due.extend_from_slice(self.scratch.handles(at));
        } else {
            let standing = self.flows.known(at);
            match self.flows.planned(at) {
                plan if plan != 0 => self.due.extend_from_slice(self.flows.plans.rules(plan)),
                _ => self.gather(snapshot, at, standing, self.flows.known_ct_state(at)),
            }
            account.connection = self.membership(at, standing);
        }
        self.due.sort_unstable_by_key(|&slot| snapshot.actions.at(slot as usize).rank());
        account.count = self.due.len() as u32;
        for (place, &slot) in account.rules.iter_mut().zip(&self.due) {
            *place = snapshot.actions.at(slot as usize).id();
        }
        account
    }

    fn membership(&self, at: usize, standing: Standing) -> Option<Membership> {
        let table = &self.flows.table;
        match standing {
            Standing::Apart
            | Standing::Invalid(_)
            | Standing::Elsewhere(_)
            | Standing::Refused(_)
            | Standing::Held(_) => return None,
            Standing::New | Standing::Member(..) | Standing::Fragment(..) | Standing::Error(..) => {}
        }
        // It may have made one.
        let (id, direction) = table.find(&self.flows.tuple(at)?)?;
        let [forward, _] = table.get(id).tuples();
        Some(Membership {
            id: id.number(),
            is_reply: direction == Direction::Reply,
            proto: forward.proto,
            arrived: Ends::of(&forward),
        })
    }
}
