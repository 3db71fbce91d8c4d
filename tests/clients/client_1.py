"""The official Python client, mcp 1: client_1.py URL ERA"""

import asyncio
import sys

import mcp.types
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

from story import tell

url, era = sys.argv[1:]
# What the client asks for in initialize.
mcp.types.LATEST_PROTOCOL_VERSION = era


async def main():
    async with streamablehttp_client(url) as (reading, writing, session_id):
        async with ClientSession(reading, writing) as session:
            hello = await session.initialize()
            assert hello.protocolVersion == era, hello
            assert "request_id" in hello.instructions
            assert session_id() is None, "a session"

            async def list_tools():
                return [tool.name for tool in (await session.list_tools()).tools]

            async def call(tool, arguments):
                result = await session.call_tool(tool, arguments)
                return result.structuredContent, result.content[0].text, result.isError

            await tell(list_tools, call)


asyncio.run(main())
