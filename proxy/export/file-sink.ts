import { constants, type FileHandle, open } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { ExportSink } from './sink.ts'

const LF = 0x0a
const HOW = constants.O_RDWR | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK

/**
 * Appends lines to a file, which are on the disk when they are taken. It is opened for each page, so that one which was
 * moved away, at any time and with or without a signal, gets no more lines. Its folder is NOT made.
 */
export const fileSink = (path: string): ExportSink => ({
  send: ({ lines }) => append(path, `${lines.join('\n')}\n`),
  close: () => Promise.resolve(),
})

async function append(path: string, text: string): Promise<void> {
  const { file, isNew } = await openFile(path)
  try {
    const stats = await file.stat()
    if (!stats.isFile()) throw new Error(`${path} is no regular file`)
    // What a full disk or a crash has left of a line is followed by whole ones.
    const cut = stats.size > 0 && (await lastByte(file, stats.size)) !== LF
    await file.appendFile(cut ? `\n${text}` : text)
    await file.sync()
  } finally {
    await file.close()
  }
  if (isNew) await syncFolder(dirname(path))
}

async function openFile(path: string): Promise<{ readonly file: FileHandle; readonly isNew: boolean }> {
  try {
    return { file: await open(path, HOW), isNew: false }
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error
    return { file: await open(path, HOW | constants.O_CREAT, 0o600), isNew: true }
  }
}

async function lastByte(file: FileHandle, size: number): Promise<number | undefined> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(1), 0, 1, size - 1)
  return bytesRead === 1 ? buffer[0] : undefined
}

/** The file's name too must outlive a crash. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY)
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}
