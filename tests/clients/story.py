"""What every client does: list tools, create, repeat, contradict, find."""

import json


async def tell(list_tools, call):
    """`call(tool, arguments)` returns (structured content, text, is_error)."""

    async def ask(tool, arguments, error=False):
        structured, text, is_error = await call(tool, arguments)
        assert structured == json.loads(text), (structured, text)
        assert is_error == error, structured
        return structured

    names = sorted(await list_tools())
    expected = ["add_comment", "create_ticket", "find_request", "get_ticket", "list_tickets", "new_request_id", "set_ticket_status"]
    assert set(expected) <= set(names), names

    request_id = (await ask("new_request_id", {}))["request_id"]
    assert (await ask("find_request", {"request_id": request_id}))["status"] == "unknown"
    arguments = {"request_id": request_id, "title": "Tinte leer 🖨", "body": "Zweiter Stock,\nlinks."}
    created = await ask("create_ticket", arguments)
    assert (created["status"], created["replayed"]) == ("done", False), created
    repeated = await ask("create_ticket", arguments)
    assert repeated == {**created, "replayed": True}, (created, repeated)
    conflict = await ask("create_ticket", {**arguments, "title": "Another"}, error=True)
    assert conflict["error"]["code"] == "conflict", conflict
    found = await ask("find_request", {"request_id": request_id})
    assert found["status"] == "done" and found["result"]["ticket_id"] == created["ticket_id"], found
    ticket = await ask("get_ticket", {"ticket_id": created["ticket_id"]})
    assert (ticket["title"], ticket["body"]) == (arguments["title"], arguments["body"]), ticket
