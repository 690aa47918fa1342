"""What every driver of a system with leaders does, against its real system and against the sandbox's stand-in (L4).

`system` has a `driver`, its `members` (three, all running), `stop` and `start` of a member, and `until(holds)`, which
reads again and again until a view holds.
"""

from contextlib import suppress

from mooring.clients.ports import RefusedError, UnansweredError


def settled(view):
    return not view.busy and sum(m.leaders for m in view.members) == 1 and all(m.is_well for m in view.members)


def leader_of(view):
    return next(m.pod for m in view.members if m.leaders)


async def who_leads_and_who_is_well(system):
    """One look names every member by its pod, one of them leads, and all are healthy and in sync."""
    view = await system.until(settled)
    assert sorted(m.pod for m in view.members) == sorted(system.members)
    assert view.life and all(m.may_lead for m in view.members)
    assert len(view.others(leader_of(view))) >= view.needs
    again = await system.driver.read()
    assert again.life == view.life, "without an election it is the same life"


async def leadership_moves_where_it_is_asked_to(system):
    """It leaves one member, the named one leads, and the life is another: two looks cannot be mistaken for one."""
    view = await system.until(settled)
    old = leader_of(view)
    new = next(m.pod for m in view.others(old))
    await system.driver.move_off(old, new)
    after = await system.until(lambda v: settled(v) and leader_of(v) != old)
    assert leader_of(after) == new and after.life != view.life


async def one_that_does_not_lead_moves_nothing(system):
    """Asked of a member that leads nothing any more (a switchover midway): refused or fine, and nobody moves."""
    view = await system.until(settled)
    leader = leader_of(view)
    first, second = (m.pod for m in view.others(leader))
    with suppress(RefusedError):
        await system.driver.move_off(first, second)
    assert leader_of(await system.until(settled)) == leader


async def a_member_that_is_away_is_not_well(system):
    """Killed: it is not well, the others are; started again it is, once it has caught up."""
    view = await system.until(settled)
    away = next(m.pod for m in view.members if not m.leaders)
    await system.stop(away)
    without = await system.until(lambda v: not v.member(away).is_well)
    assert sum(m.is_well for m in without.members) == 2
    assert [m.pod for m in without.members if m.leaders] == [leader_of(view)]
    await system.start(away)
    await system.until(settled)


async def nobody_answers(system):
    """All away: no view at all, never one in which nobody leads."""
    await system.until(settled)
    for name in system.members:
        await system.stop(name)
    try:
        found = await system.driver.read()
    except UnansweredError:
        return
    raise AssertionError(f"a view of a system that is away: {found}")


CASES = (
    who_leads_and_who_is_well,
    leadership_moves_where_it_is_asked_to,
    one_that_does_not_lead_moves_nothing,
    a_member_that_is_away_is_not_well,
    nobody_answers,
)
