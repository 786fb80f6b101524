import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** Why a file system of our own cannot be mounted, or false. */
export function withoutTmpfs(): string | false {
  if (process.getuid?.() !== 0) return 'only root can mount a small file system'
  const probe = spawnSync('unshare', ['-m', 'mount', '-t', 'tmpfs', 'tmpfs', tmpdir()])
  return probe.status === 0 ? false : 'no file system can be mounted here'
}

/** A file system of its own, of a size as `mount` takes it. Returns its directory; gone with the test. */
export function smallDisk(t: Test, size: string): string {
  const mount = mkdtempSync(join(tmpdir(), 'sallyport-disk-'))
  t.equal(spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', mount]).status, 0)
  t.teardown(() => {
    spawnSync('umount', ['-l', mount])
    rmdirSync(mount)
  })
  return mount
}
