// Requests to the REST API. The token stays in this tab, and is sent in a header only.

const KEY = "mmb-token";

/** An answer that says why there is none (RFC 9457). */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? `the server answered ${status}`);
    this.status = status;
    this.errors = body?.errors ?? [];
  }
}

/** Takes the token out of the address, so that it stays in no history. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + "#/overview");
  }
}

export const setToken = (token) => (token ? sessionStorage.setItem(KEY, token) : sessionStorage.removeItem(KEY));

async function request(method, path, body, more) {
  const headers = { "X-Mmb-Request": "1", ...more };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const options = { method, headers, credentials: "omit", body: body === undefined ? undefined : JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem(0, { detail: "mmb web does not answer" });
  }
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => null));
  return response;
}

export const get = async (path) => (await request("GET", path)).json();
export const getText = async (path) => {
  const response = await request("GET", path);
  return { text: await response.text(), tag: response.headers.get("ETag") };
};
export const post = async (path, body) => (await request("POST", path, body)).json();
export const put = async (path, body, tag) => (await request("PUT", path, body, tag ? { "If-Match": tag } : {})).json();
