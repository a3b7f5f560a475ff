// Columns of numbers from the server: the same as dropflow/graph/drawing/packing.py.

const KINDS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array };

/**
 * @param {ArrayBuffer} buffer
 * @returns {{head: any, columns: Record<string, Uint8Array | Uint16Array | Uint32Array | Float32Array>}}
 */
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const columns = {};
  for (const { name, type, at, length: items } of head.columns) {
    columns[name] = new KINDS[type](buffer, 4 + length + at, items);
  }
  return { head, columns };
}

const PAUSES = [300, 1_000, 3_000];

/**
 * Fetch an address. If the connection breaks before there is an answer, it is tried again.
 *
 * @param {string} address
 * @param {RequestInit} options of a request that changes nothing
 */
export async function fetchAgain(address, options = {}) {
  for (const pause of PAUSES) {
    try {
      return await fetch(address, options);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      await new Promise((done) => setTimeout(done, pause));
    }
  }
  return fetch(address, options);
}

/**
 * Fetch columns.
 *
 * @param {string} address
 * @throws {Error} with the text of the server's refusal
 */
export async function fetchColumns(address) {
  const answer = await fetchAgain(address, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(await refusal(answer));
  return unpack(await answer.arrayBuffer());
}

/** @param {Response} answer */
export async function refusal(answer) {
  try {
    const body = await answer.json();
    return body.text ?? body.error?.text ?? `the server answered ${answer.status}`;
  } catch {
    return `the server answered ${answer.status}`;
  }
}

/**
 * @param {string} text base64
 * @returns {Uint8Array}
 */
export function octets(text) {
  const binary = atob(text);
  const found = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) found[at] = binary.charCodeAt(at);
  return found;
}
