const BLOCK = 512
/** The places of the fields of a header (POSIX ustar). */
const NAME = [0, 100] as const
const SIZE = [124, 136] as const
const TYPE = [156, 157] as const
const REGULAR: ReadonlySet<string> = new Set(['', '0'])

/**
 * The regular files of a tar archive by their names, without a leading `/` or `./`.
 * Throws an Error with one sentence where it is cut short, or names a file twice.
 * Does NOT read names longer than 100 bytes whole: a bundle of the Open Policy Agent has what we look for at
 * its root.
 */
export function tarFiles(archive: Buffer): ReadonlyMap<string, Buffer> {
  const files = new Map<string, Buffer>()
  for (let at = 0; at + BLOCK <= archive.length && archive[at] !== 0; ) {
    const header = archive.subarray(at, at + BLOCK)
    const name = field(header, NAME).replace(/^\.?\//, '')
    const start = at + BLOCK
    const end = start + sizeOf(header)
    if (end > archive.length) throw new Error('it is cut short')
    if (REGULAR.has(field(header, TYPE))) {
      if (files.has(name)) throw new Error(`it holds ${name} twice`)
      files.set(name, archive.subarray(start, end))
    }
    at = start + Math.ceil((end - start) / BLOCK) * BLOCK
  }
  return files
}

function field(header: Buffer, [from, to]: readonly [number, number]): string {
  const text = header.toString('latin1', from, to)
  const end = text.indexOf('\0')
  return end < 0 ? text : text.slice(0, end)
}

function sizeOf(header: Buffer): number {
  const digits = field(header, SIZE).trim()
  if (!/^[0-7]{1,12}$/.test(digits)) throw new Error('it is no tar archive')
  return Number.parseInt(digits, 8)
}
