// The official TypeScript client's own OAuth flow: sdk.mjs URL
import assert from "node:assert/strict";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { visit } from "./browser.mjs";

const url = new URL(process.argv[2]);

class Keeper {
    constructor(scope) {
        this.scope = scope;
        this.asked = [];
    }
    get redirectUrl() {
        return "https://claude.ai/api/mcp/auth_callback";
    }
    get clientMetadata() {
        return {
            client_name: "sdk",
            redirect_uris: [this.redirectUrl],
            grant_types: ["authorization_code", "refresh_token"],
            response_types: ["code"],
            token_endpoint_auth_method: "none",
            scope: this.scope,
        };
    }
    clientInformation() {
        return this.client;
    }
    saveClientInformation(client) {
        this.client = client;
    }
    tokens() {
        return this.kept;
    }
    saveTokens(tokens) {
        this.kept = tokens;
    }
    saveCodeVerifier(verifier) {
        this.verifier = verifier;
    }
    codeVerifier() {
        return this.verifier;
    }
    async redirectToAuthorization(address) {
        this.asked.push(address.searchParams.get("scope"));
        assert.equal(address.searchParams.get("resource"), url.href);
        this.code = (await visit(address.href, "sdk")).searchParams.get("code");
    }
}

// Runs `work` on a connection; where it ends in a redirect, finishes the flow and runs it again.
async function connected(keeper, work) {
    for (let round = 0; round < 3; round += 1) {
        const transport = new StreamableHTTPClientTransport(url, { authProvider: keeper });
        const client = new Client({ name: "sdk", version: "1" });
        try {
            await client.connect(transport);
            return await work(client);
        } catch (error) {
            if (!(error instanceof UnauthorizedError)) throw error;
            await transport.finishAuth(keeper.code);
        } finally {
            await client.close();
        }
    }
    throw new Error("still not let in");
}

const create = (client) =>
    client.callTool({ name: "create_ticket", arguments: { request_id: "sdk", title: "By the SDK", body: "" } });

const keeper = new Keeper("tickets:read tickets:write entries:read entries:write");
const created = await connected(keeper, create);
assert.equal(created.structuredContent.replayed, false, JSON.stringify(created));
assert.deepEqual(keeper.asked, ["tickets:read tickets:write entries:read entries:write"]);
assert.equal((await connected(keeper, create)).structuredContent.replayed, true);
assert.equal(keeper.asked.length, 1);

// A token with less, and a call that needs more: the client asks for it by itself.
const less = new Keeper("tickets:read tickets:write entries:read entries:write");
less.saveTokens(undefined);
const narrow = new Proxy(less, {
    get(target, name) {
        if (name !== "redirectToAuthorization" || target.asked.length > 0) return Reflect.get(target, name);
        return async (address) => {
            address.searchParams.set("scope", "tickets:read");
            await target.redirectToAuthorization(address);
        };
    },
});
const stepped = await connected(narrow, create);
assert.equal(stepped.structuredContent.replayed, true, JSON.stringify(stepped));
assert.deepEqual(less.asked, ["tickets:read", "tickets:read tickets:write"]);
console.log("stepped up from tickets:read");
