// The official TypeScript client: client.mjs URL ERA

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, era] = process.argv.slice(2);

// The client always asks for the newest era it knows; another one is put into its first message on the way.
const fetchInEra = (target, request) => {
  if (typeof request?.body === "string") {
    const message = JSON.parse(request.body);
    if (message.method === "initialize") {
      message.params.protocolVersion = era;
      request = { ...request, body: JSON.stringify(message) };
    }
  }
  return fetch(target, request);
};

const transport = new StreamableHTTPClientTransport(new URL(url), { fetch: fetchInEra });
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);
assert.equal(transport.protocolVersion, era);
assert.equal(transport.sessionId, undefined);
assert.match(client.getInstructions(), /request_id/);

const ask = async (tool, args, error = false) => {
  const result = await client.callTool({ name: tool, arguments: args });
  assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent);
  assert.equal(result.isError ?? false, error, JSON.stringify(result));
  return result.structuredContent;
};

const names = (await client.listTools()).tools.map((tool) => tool.name);
assert.ok(names.includes("create_ticket") && names.includes("find_request"), names.join());

const { request_id } = await ask("new_request_id", {});
assert.equal((await ask("find_request", { request_id })).status, "unknown");
const args = { request_id, title: "プリンター 🖨", body: "二階\n左" };
const created = await ask("create_ticket", args);
assert.equal(created.replayed, false);
assert.deepEqual(await ask("create_ticket", args), { ...created, replayed: true });
assert.equal((await ask("create_ticket", { ...args, title: "Another" }, true)).error.code, "conflict");
const found = await ask("find_request", { request_id });
assert.equal(found.status, "done");
assert.equal(found.result.ticket_id, created.ticket_id);
const ticket = await ask("get_ticket", { ticket_id: created.ticket_id });
assert.deepEqual([ticket.title, ticket.body], [args.title, args.body]);
await client.close();
