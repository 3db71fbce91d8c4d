// A person at a browser, who logs in and agrees: node browser.mjs AUTHORIZATION_URL [LOGIN] prints where that led.
import { fileURLToPath } from "node:url";

export async function visit(url, login = "anna") {
    const cookies = new Map();
    let request = { method: "GET" };
    for (let step = 0; step < 20; step += 1) {
        const headers = { ...request.headers, cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") };
        const response = await fetch(url, { ...request, headers, redirect: "manual" });
        for (const cookie of response.headers.getSetCookie()) {
            const [pair] = cookie.split(";");
            const at = pair.indexOf("=");
            cookies.set(pair.slice(0, at), pair.slice(at + 1));
        }
        request = { method: "GET" };
        const location = response.headers.get("location");
        if (location) {
            const next = new URL(location, url);
            if (next.origin !== new URL(url).origin) return next;
            url = next;
            continue;
        }
        const page = await response.text();
        const prompt = /name="prompt" value="(\w+)"/.exec(page)?.[1];
        const action = /action="([^"]+)"/.exec(page)?.[1];
        if (!prompt || !action) throw new Error(`${response.status} at ${url}: ${page.slice(0, 500)}`);
        url = new URL(action, url);
        request = {
            method: "POST",
            headers: { "content-type": "application/x-www-form-urlencoded" },
            body: new URLSearchParams({ prompt, login, password: "any" }),
        };
    }
    throw new Error("the way does not end");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    console.log((await visit(process.argv[2], process.argv[3])).href);
}
