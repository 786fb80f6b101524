import { statSync } from 'node:fs'

/** Notices that the file under an open connection is no longer the one at its path (docs/threats.md#f-06). */
export interface FileWatch {
  /** Throws where the database or its write-ahead log was deleted or replaced since it was first seen. */
  assertSame(): void
}

export function fileWatch(file: string): FileWatch {
  const seen = new Map<string, string>()
  function assertSame(): void {
    for (const path of [file, `${file}-wal`]) {
      const now = identity(path)
      const before = seen.get(path) ?? now
      if (now === null || now !== before)
        throw new Error(`${path} was deleted or replaced while it was being written`)
      seen.set(path, now)
    }
  }
  assertSame()
  return { assertSame }
}

function identity(path: string): string | null {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat ? `${stat.dev}:${stat.ino}` : null
}
