"""Places for calls: who waits, who gives up, and that no place is lost."""

import asyncio

from slime_core.aio import Slots


def test_a_place_that_is_given_back_passes_over_who_gave_up_before() -> None:
    async def ran() -> list[str]:
        slots, seen = Slots(1), []

        async def wait(name: str) -> None:
            await slots.acquire()
            seen.append(name)

        await slots.acquire()
        first, second = asyncio.create_task(wait("first")), asyncio.create_task(wait("second"))
        await asyncio.sleep(0)
        first.cancel()
        slots.release()  # before the first one's task has run again
        ended = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError)
        slots.release()
        await slots.acquire()
        return seen

    assert asyncio.run(ran()) == ["second"]
