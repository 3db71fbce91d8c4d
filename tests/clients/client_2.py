"""The official Python client, mcp 2: client_2.py URL legacy|auto|2026-07-28"""

import asyncio
import sys

from mcp import Client

from story import tell

url, mode = sys.argv[1:]


async def main():
    async with Client(url, mode=mode) as client:
        era = client.protocol_version
        assert era == ("2025-11-25" if mode == "legacy" else "2026-07-28"), era

        async def list_tools():
            return [tool.name for tool in (await client.list_tools()).tools]

        async def call(tool, arguments):
            result = await client.call_tool(tool, arguments)
            return result.structured_content, result.content[0].text, result.is_error

        await tell(list_tools, call)


asyncio.run(main())
