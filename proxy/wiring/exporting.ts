import type { LedgerFollower } from '../../db/ledger/cursors/follow.ts'
import type { ExportFollowers } from '../export/followers.ts'
import type { ExportOptions } from '../export/options.ts'

/**
 * Keeps the sinks of the configuration in force open. Nothing of them is loaded before a file names one; a reload that
 * changes none leaves them open.
 */
export class OpenExport {
  #options = ''
  #opened: Promise<ExportFollowers> | null = null

  /** The readers of the ledger that a file asks for; null: there is no file. */
  async followers(options: ExportOptions | null): Promise<readonly LedgerFollower[]> {
    const text = JSON.stringify(options)
    if (text !== this.#options) {
      await this.close()
      this.#options = text
      if (options)
        this.#opened = import('../export/followers.ts').then(({ openExport }) => openExport(options))
    }
    return (await this.#opened)?.followers ?? []
  }

  async close(): Promise<void> {
    const opened = this.#opened
    this.#opened = null
    this.#options = ''
    await (await opened)?.close()
  }
}
