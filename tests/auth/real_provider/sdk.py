"""The official Python client's own OAuth flow: sdk.py URL NODE BROWSER"""

import asyncio
import subprocess
import sys
from urllib.parse import parse_qs, urlparse

from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.auth import OAuthClientMetadata

url, node, browser = sys.argv[1:]


class Keeper(TokenStorage):
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Person:
    """Logs in and agrees."""

    asked = []
    first_scope = None
    answer = None

    async def redirect(self, address):
        query = parse_qs(urlparse(address).query)
        if self.first_scope and not self.asked:
            address = address.replace(query["scope"][0].replace(" ", "+").replace(":", "%3A"), self.first_scope)
            query = parse_qs(urlparse(address).query)
        self.asked.append(query["scope"][0])
        assert query["resource"] == [url], query
        led = subprocess.run([node, browser, address, "python"], check=True, capture_output=True, text=True)
        self.answer = parse_qs(urlparse(led.stdout.strip()).query)

    async def callback(self):
        return self.answer["code"][0], self.answer.get("state", [None])[0]


def provider(person, keeper):
    metadata = OAuthClientMetadata(
        client_name="python",
        redirect_uris=["https://claude.ai/api/mcp/auth_callback"],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
        scope="tickets:read tickets:write entries:read entries:write",
    )
    return OAuthClientProvider(
        server_url=url,
        client_metadata=metadata,
        storage=keeper,
        redirect_handler=person.redirect,
        callback_handler=person.callback,
    )


async def create(person, keeper):
    async with streamablehttp_client(url, auth=provider(person, keeper)) as (reading, writing, _):
        async with ClientSession(reading, writing) as session:
            await session.initialize()
            arguments = {"request_id": "python", "title": "By the Python client", "body": ""}
            result = await session.call_tool("create_ticket", arguments)
            assert not result.isError, result
            return result.structuredContent


async def main():
    person, keeper = Person(), Keeper()
    assert (await create(person, keeper))["replayed"] is False
    assert (await create(person, keeper))["replayed"] is True
    assert person.asked == ["tickets:read tickets:write entries:read entries:write"], person.asked

    # A token with less, and a call that needs more: the client asks for it by itself.
    person, keeper = Person(), Keeper()
    person.asked, person.first_scope = [], "tickets%3Aread"
    assert (await create(person, keeper))["replayed"] is True
    assert person.asked == ["tickets:read", "tickets:read tickets:write"], person.asked
    print("stepped up from tickets:read")


asyncio.run(main())
