import { type Entry, openPromise } from 'yauzl'

/** The files of a zip, by name: strangers' bytes, read as they are needed. */
export interface Zip {
  readonly names: readonly string[]
  /** A whole file. Throws one sentence where it is not there, or longer than `limit` bytes. */
  readonly bytes: (name: string, limit: number) => Promise<Buffer>
  readonly stream: (name: string) => Promise<AsyncIterable<Buffer>>
  readonly close: () => void
}

/** Opens a zip. Throws one sentence where it is none, or names one file twice. */
export async function openZip(path: string): Promise<Zip> {
  const zip = await openPromise(path, { autoClose: false })
  const entries = new Map<string, Entry>()
  for await (const entry of zip.eachEntry()) {
    if (entries.has(entry.fileName)) throw new Error(`${entry.fileName} is in the zip twice`)
    entries.set(entry.fileName, entry)
  }
  const stream = async (name: string): Promise<AsyncIterable<Buffer>> => {
    const entry = entries.get(name)
    if (!entry) throw new Error(`${name} is not in the zip`)
    return zip.openReadStreamPromise(entry)
  }
  return {
    names: [...entries.keys()],
    stream,
    bytes: async (name, limit) => {
      if ((entries.get(name)?.uncompressedSize ?? 0) > limit)
        throw new Error(`${name} is longer than ${limit} bytes`)
      const chunks: Buffer[] = []
      for await (const chunk of await stream(name)) chunks.push(chunk)
      return Buffer.concat(chunks)
    },
    close: () => zip.close(),
  }
}
