"""Simulated machines: those of the papers, reconstructed from their figures, and a current one."""

from __future__ import annotations

from headrace.cost.facts import Machine
from headrace.errors import choice
from headrace.metrics import Factors
from headrace.relation.disk import Disk

#: A Pentium IV with a local disk of 7,200 rpm ([MESH] §5.1, [DEF] §4.2). The disk reads 84 MB/s; a random read takes a seek and
#: half a rotation. The factors reproduce MESHJOIN in Fig. 10b for 3.5 M tuples of 120 B: a little over 6,000 stream tuples per
#: second with 1% of the relation in memory and 26,000 with 10%, where the maintenance of H and Q is the bottleneck (§5.2).
HDD = Machine(
    seek=8e-3,
    transfer=97e-6,
    follow=0.5e-3,
    factors=Factors(c_E=12e-6, c_S=1e-6, c_A=14e-6, c_H=0.25e-6, c_O=0.2e-6, c_X=2e-6),
)

#: That disk with a processor of 2011 (an i7, [SSIJ] §VI).
HDD_2011 = Machine(seek=8e-3, transfer=97e-6, follow=0.5e-3)

#: A SATA SSD and a current processor: random reads cost nearly as little as sequential ones.
SSD = Machine(
    seek=65e-6,
    transfer=16e-6,
    factors=Factors(c_E=0.03e-6, c_S=0.01e-6, c_A=0.05e-6, c_H=0.03e-6, c_O=0.05e-6, c_X=0.05e-6),
)

#: Machines by the names that `headrace tune --machine` takes.
MACHINES: dict[str, Machine] = {"hdd": HDD, "hdd-2011": HDD_2011, "ssd": SSD}


def machine_of(name: str) -> Machine:
    """Return a machine by its name."""
    return MACHINES[choice("machine", name, tuple(MACHINES))]


def disk_of(machine: Machine | str) -> Disk:
    """Make a simulated disk of a machine, with a clock of its own.

    Example
    -------
    >>> disk_of("hdd").costs(8192)
    (0.008, 9.7e-05)
    """
    m = machine_of(machine) if isinstance(machine, str) else machine
    return Disk("simulated", seek=m.seek, transfer=m.transfer, longest=m.longest, factors=m.factors, follow=m.follow)
