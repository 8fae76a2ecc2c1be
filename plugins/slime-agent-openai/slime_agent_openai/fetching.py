"""What is answered without the model: models, stored replies and their items, conversations.

Example:

    answered(memory, "GET", "responses/resp_1", Value({}))
    answered(memory, "POST", "conversations", Value({"metadata": {"task": "7"}}))
"""

from slime_agent_openai.errors import ApiError
from slime_agent_openai.memory import Memory, missing
from slime_agent_openai.wires.items import page, whole
from slime_agent_openai.wires.models import model_body, models_body
from slime_agent_openai.wires.reading import Value
from slime_agent_openai.wires.wire import Body

NO_COMPACTION = (
    "nobody would be trained on what a provider's model makes of a history; let the agent ask the model for a summary, "
    "and go on from that in a conversation of its own"
)
"""Why no conversation is compacted."""


def answered(memory: Memory, method: str, path: str, said: Value) -> Body | None:
    """The body of an answer; None: nothing here answers that.

    Args:
        memory: of the session that is asked.
        method: of HTTP.
        path: after /v1/.
        said: the query of the URL, or the body of a POST.

    Raises:
        ApiError: what is asked for is not there, or asked for wrongly.
    """
    match method, path.split("/"):
        case "GET", ["models"]:
            return models_body()
        case "GET", ["models", name]:
            return model_body(name)
        case "POST", ["responses", "compact"]:
            raise ApiError(404, f"/v1/responses/compact is not supported here: {NO_COMPACTION}", code="not_found")
        case _, ["responses", name, *rest]:
            return _response(memory, method, name, rest, said)
        case "POST", ["conversations"]:
            return memory.converse(said.at("items"), {**said.at("metadata").object()}).body
        case _, ["conversations", name]:
            return _conversation(memory, method, name, said)
        case _, ["conversations", name, "items", *item]:
            return _items(memory, method, name, item, said)
    return None


def _response(memory: Memory, method: str, name: str, rest: list[str], said: Value) -> Body | None:
    match method, rest:
        case "GET", []:
            return memory.reply(name).replied
        case "GET", ["input_items"]:
            return page(memory.reply(name).asked, said)
        case "POST", ["cancel"]:
            return memory.reply(name).replied  # it has ended: nothing runs unseen
        case "DELETE", []:
            memory.forget(name)
            return {"id": name, "object": "response", "deleted": True}
    return None


def _conversation(memory: Memory, method: str, name: str, said: Value) -> Body | None:
    if method not in ("GET", "POST", "DELETE"):
        return None
    conversation = memory.conversation(name)
    if method == "POST":
        conversation.metadata = {**said.at("metadata").object()}
    if method == "DELETE":
        del memory.conversations[name]
        return {"id": name, "object": "conversation.deleted", "deleted": True}
    return conversation.body


def _items(memory: Memory, method: str, name: str, item: list[str], said: Value) -> Body | None:
    match method, item:
        case "POST", []:
            return whole(memory.extend(memory.conversation(name), said.at("items")))
        case "GET", []:
            return page(memory.conversation(name).items, said)
        case "GET", [wanted]:
            found = next((each for each in memory.conversation(name).items if each["id"] == wanted), None)
            if found is None:
                raise missing("item of this conversation", wanted)
            return found
        case "DELETE", [wanted]:
            conversation = memory.conversation(name)
            conversation.remove(wanted)
            return conversation.body
    return None
