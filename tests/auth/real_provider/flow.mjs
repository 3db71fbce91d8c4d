// What a claude.ai connector does, step by step: flow.mjs STEP URL FILE
//
// STEP is `first` (from nothing to a ticket; keeps the token in FILE), `down` (the issuer is out of reach) or `rotated` (it is back,
// with other keys).
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { visit } from "./browser.mjs";

const [step, url, file] = process.argv.slice(2);
const redirect = "https://claude.ai/api/mcp/auth_callback";
const json = async (response) => {
    assert.equal(response.status, 200, `${response.status} ${await response.clone().text()}`);
    return response.json();
};

async function call(token, method, params) {
    const headers = {
        accept: "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2025-11-25",
    };
    if (token) headers.authorization = `Bearer ${token}`;
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
    return fetch(url, { method: "POST", headers, body });
}

const tool = (token, name, args) => call(token, "tools/call", { name, arguments: args });

// A token by the code flow with PKCE, for a client that registers itself.
async function log_in(server, scope, resource, login) {
    const registered = await fetch(server.registration_endpoint, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
            client_name: "Claude",
            redirect_uris: [redirect],
            grant_types: ["authorization_code", "refresh_token"],
            response_types: ["code"],
            token_endpoint_auth_method: "none",
            scope,
        }),
    });
    assert.equal(registered.status, 201, await registered.clone().text());
    const client = await registered.json();
    const verifier = randomBytes(32).toString("base64url");
    const state = randomBytes(8).toString("hex");
    const question = new URL(server.authorization_endpoint);
    question.search = new URLSearchParams({
        response_type: "code",
        client_id: client.client_id,
        redirect_uri: redirect,
        code_challenge: createHash("sha256").update(verifier).digest("base64url"),
        code_challenge_method: "S256",
        state,
        scope,
        resource,
    });
    const answer = await visit(question.href, login);
    assert.equal(answer.origin + answer.pathname, redirect, answer.href);
    assert.equal(answer.searchParams.get("state"), state, answer.href);
    const tokens = await json(
        await fetch(server.token_endpoint, {
            method: "POST",
            headers: { "content-type": "application/x-www-form-urlencoded" },
            body: new URLSearchParams({
                grant_type: "authorization_code",
                code: answer.searchParams.get("code"),
                redirect_uri: redirect,
                client_id: client.client_id,
                code_verifier: verifier,
                resource,
            }),
        }),
    );
    return tokens.access_token;
}

// From a 401 to the authorization server's metadata, as MCP says.
async function discover() {
    const refused = await call(undefined, "initialize", {});
    assert.equal(refused.status, 401);
    const challenge = refused.headers.get("www-authenticate");
    const metadata = await json(await fetch(/resource_metadata="([^"]+)"/.exec(challenge)[1]));
    assert.equal(metadata.resource, url);
    const [issuer] = metadata.authorization_servers;
    const server = await json(await fetch(`${issuer}/.well-known/openid-configuration`));
    assert.equal(server.issuer, issuer);
    assert.ok(server.code_challenge_methods_supported.includes("S256"));
    return { metadata, server, scope: /scope="([^"]+)"/.exec(challenge)[1] };
}

async function refused(token, status, words) {
    const answer = await tool(token, "create_ticket", { request_id: "refused", title: "No", body: "" });
    const challenge = answer.headers.get("www-authenticate") ?? "";
    assert.equal(answer.status, status, challenge);
    assert.ok(challenge.includes(words), challenge);
}

async function first() {
    const { metadata, server, scope } = await discover();
    assert.equal(scope, "tickets:read tickets:write entries:read entries:write");
    const token = await log_in(server, scope, metadata.resource, "anna");
    const claims = JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
    console.log(`aud ${claims.aud}, scope ${claims.scope}, sub ${claims.sub}`);
    assert.equal(claims.aud, url);
    const hello = await json(
        await call(token, "initialize", {
            protocolVersion: "2025-11-25",
            capabilities: {},
            clientInfo: { name: "flow", version: "1" },
        }),
    );
    assert.equal(hello.result.protocolVersion, "2025-11-25");
    const listed = await json(await call(token, "tools/list", {}));
    assert.ok(listed.result.tools.some((tool) => tool.name === "create_ticket"));
    const arguments_ = { request_id: "real", title: "By a real provider", body: "" };
    const created = await json(await tool(token, "create_ticket", arguments_));
    assert.equal(created.result.structuredContent.replayed, false);
    const again = await json(await tool(token, "create_ticket", arguments_));
    assert.equal(again.result.structuredContent.replayed, true);
    assert.equal(again.result.structuredContent.ticket_id, created.result.structuredContent.ticket_id);

    // Somebody else, the same request_id: a ticket of their own.
    const bert = await log_in(server, scope, metadata.resource, "bert");
    const own = await json(await tool(bert, "create_ticket", arguments_));
    assert.equal(own.result.structuredContent.replayed, false);

    // Less scope: fewer tools, and a challenge that says what to ask for.
    const reader = await log_in(server, "tickets:read", metadata.resource, "anna");
    const few = await json(await call(reader, "tools/list", {}));
    assert.ok(!few.result.tools.some((tool) => tool.name === "create_ticket"));
    await refused(reader, 403, 'error="insufficient_scope"');
    await refused(reader, 403, 'scope="tickets:read tickets:write"');

    // A token of the same issuer for another service.
    const elsewhere = await log_in(server, scope, "http://127.0.0.1:9/mcp", "anna");
    await refused(elsewhere, 401, "the token is for another audience");
    // An ID token's look, and one that was changed on the way.
    await refused(`${token.slice(0, -8)}AAAAAAAA`, 401, "the token was not signed by the issuer");
    writeFileSync(file, token);
}

async function down() {
    const token = readFileSync(file, "utf8");
    const found = await json(await tool(token, "find_request", { request_id: "real" }));
    assert.equal(found.result.structuredContent.status, "done");
    console.log("tokens that are known go on");
}

async function rotated() {
    const { metadata, server, scope } = await discover();
    const token = await log_in(server, scope, metadata.resource, "anna");
    const found = await json(await tool(token, "find_request", { request_id: "real" }));
    assert.equal(found.result.structuredContent.status, "done");
    await refused(readFileSync(file, "utf8"), 401, "the issuer has no key of this name");
    console.log("a token by the new key is taken, one by the old key is not");
}

await { first, down, rotated }[step]();
