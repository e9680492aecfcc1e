import numpy as np

forget = np.loadtxt("forget", dtype=int)
z = np.delete(np.load("features.npy"), forget, axis=0).astype(np.float64)
y = np.delete(np.load("labels.npy"), forget)
z = np.column_stack([z, np.ones(len(z))])
np.save("head.npy", np.linalg.solve(z.T @ z + 1e-3 * np.eye(z.shape[1]), z.T @ np.eye(10)[y]))
