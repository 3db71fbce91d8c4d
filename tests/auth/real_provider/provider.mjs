// An authorization server, oidc-provider: provider.mjs PORT RESOURCE
//
// Its keys are made when it starts, so starting it again rotates them. Anybody may register a client, and log in as whomever they
// like.
import { generateKeyPairSync } from "node:crypto";
import Provider from "oidc-provider";

const [port, resource] = process.argv.slice(2);
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const key = { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: `key-${Date.now()}` };

// All that the service may ask for.
const scopes = ["tickets:read", "tickets:write", "entries:read", "entries:write"];

const provider = new Provider(`http://127.0.0.1:${port}`, {
    jwks: { keys: [key] },
    scopes: ["openid", "offline_access", ...scopes],
    pkce: { required: () => true },
    // Clients that are registered ask from wherever they are.
    clientBasedCORS: () => true,
    features: {
        devInteractions: { enabled: true },
        registration: { enabled: true },
        resourceIndicators: {
            enabled: true,
            defaultResource: () => resource,
            useGrantedResource: () => true,
            getResourceServerInfo: (_, indicator) => ({
                scope: scopes.join(" "),
                audience: indicator,
                accessTokenFormat: "jwt",
                accessTokenTTL: 600,
                jwt: { sign: { alg: "RS256" } },
            }),
        },
    },
});
provider.listen(Number(port), "127.0.0.1");
